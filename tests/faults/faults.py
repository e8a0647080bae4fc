"""All that the service must survive."""

from __future__ import annotations

from tests.faults import (
    bodies,
    catalogues,
    clocks,
    connections,
    damage,
    databases,
    deadlines,
    disk,
    hostile,
    keys,
    kills,
    long_sessions,
    merges,
    order,
    overload,
    propensities,
    sharing,
    shutdown,
    soak,
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
    Fault("deadlines", deadlines.run),
    Fault("overload", overload.run),
    Fault("swaps", swaps.run),
    Fault("shutdown", shutdown.run),
    Fault("soak", soak.run),
    Fault("disk", disk.run),
    Fault("keys", keys.run),
    Fault("sharing", sharing.run),
    Fault("databases", databases.run),
    Fault("clocks", clocks.run),
    Fault("damage", damage.run),
    Fault("merges", merges.run),
    Fault("long_sessions", long_sessions.run),
    Fault("catalogues", catalogues.run),
)
