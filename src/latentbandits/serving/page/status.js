// Whether what is shown is live, and what to do where it is not.

import { find } from "./dom.js";
import { ago } from "./format.js";

export class Status {
  #heard = null; // milliseconds, by this machine's clock

  live() {
    this.#heard = Date.now();
    this.#set("live", "Live");
    this.#notice("");
  }

  locked() {
    this.#set("locked", "Key needed");
    this.#notice("");
  }

  away(error) {
    this.#set("away", "Not connected");
    const since = this.#heard === null ? "" : ` What you see is from ${ago((Date.now() - this.#heard) / 1000)}.`;
    this.#notice(`${error.message} Is it running? Trying again.${since}`);
  }

  /** It answers, but not as this page needs it. */
  unable(error) {
    this.#set("away", "Stopped");
    this.#notice(`${error.message.replace(/\.?$/, ".")} Nothing is lost; you can start again.`);
  }

  /** A pick did not arrive. */
  lost(error) {
    this.#set("away", "Not connected");
    this.#notice(`${error.message} Your pick was not taken: try it again once the service is back.`);
  }

  #set(kind, text) {
    const pill = find("status");
    if (pill.textContent !== text) pill.textContent = text;
    pill.dataset.kind = kind;
    document.body.dataset.status = kind;
  }

  #notice(text) {
    const notice = find("notice");
    notice.hidden = text === "";
    if (notice.textContent !== text) notice.textContent = text;
  }
}
