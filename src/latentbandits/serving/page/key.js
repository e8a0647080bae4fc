// Asks for an API key where the service wants one. It is kept in this tab only.

import { hasKey, useKey } from "./api.js";
import { element, find } from "./dom.js";

/** Resolves once a key was given; `reason` is what the service said. */
export function askKey(reason, scopes) {
  const input = element("input", {
    id: "key", type: "password", required: "", autocomplete: "off", spellcheck: "false",
    placeholder: "lb_…", pattern: "[!-~]+", "aria-describedby": "key-why",
  });
  const form = element("form", {},
    element("h2", {}, "This service asks for a key"),
    element("p", { id: "key-why" },
      hasKey() ? `The service said: ${reason}. ` : "",
      "A key with the scope ", element("code", {}, scopes), " opens this page. It stays in this tab, and is forgotten when the tab is closed."),
    element("label", { for: "key" }, "API key"),
    element("div", { class: "field" }, input, element("button", { class: "primary" }, "Open")));
  const place = find("key-place");
  place.replaceChildren(form);
  place.hidden = false;
  input.focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      useKey(input.value.trim());
      place.hidden = true;
      place.replaceChildren();
      resolve();
    });
  });
}
