"""All that the service must survive."""

from __future__ import annotations

from tests.faults import (
    bodies,
    connections,
    disk,
    hostile,
    keys,
    kills,
    order,
    overload,
    propensities,
    sharing,
    shutdown,
    swaps,
    visibility,
)
from tests.faults.table import Fault

FAULTS = (
    Fault("kills", kills.run),
    Fault("order", order.run),
    Fault("visibility", visibility.run),
    Fault("propensities", propensities.run),
    Fault("hostile", hostile.run),
    Fault("bodies", bodies.run),
    Fault("connections", connections.run),
    Fault("overload", overload.run),
    Fault("swaps", swaps.run),
    Fault("shutdown", shutdown.run),
    Fault("disk", disk.run),
    Fault("keys", keys.run),
    Fault("sharing", sharing.run),
)
