"""Reference pages that are generated from the code, by file name."""

from collections.abc import Callable

from tools.site.reference import command_line, errors, formats, http_api, service
from tools.site.reference.python_names import MODULES, module_page
from tools.site.reference.registries import models_page, policies_page

PAGES: dict[str, Callable[[], str]] = {
    "policies": policies_page,
    "models": models_page,
    **{name: lambda name=name: module_page(name) for name in MODULES},
    "command-line": command_line.page,
    "http-api": http_api.page,
    "settings": service.settings_page,
    "metrics": service.metrics_page,
    "file-formats": formats.page,
    "errors": errors.page,
}
"""Each page of the reference: the stem of its file, and the function that writes its Markdown."""
