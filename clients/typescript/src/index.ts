/**
 * A client of a latentbandits decision service, for Node 20+, browsers and edge runtimes.
 *
 * Every request carries an id or is safe to repeat: a request whose answer was lost is sent again,
 * and nothing is done twice. Every call ends by its deadline. If no answer came by then and the
 * caller gave a default action, `decide` returns that, and the decision says so (`fallback`).
 *
 * Fields of requests and answers have the names of the HTTP API; their types are generated from
 * the service's OpenAPI document (`npm run generate`).
 */
import type { components } from "./api.js";

type Schemas = components["schemas"];
export type DecideRequest = Schemas["DecideRequest"];
export type Decided = Schemas["Decided"];
export type RewardRequest = Schemas["RewardRequest"];
export type Rewarded = Schemas["Rewarded"];
export type SessionView = Schemas["SessionView"];
export type Forgotten = Schemas["Forgotten"];
export type Models = Schemas["Models"];
export type ActivateRequest = Schemas["ActivateRequest"];
export type ActionsEarned = Schemas["ActionsEarned"];
export type CatalogueView = Schemas["CatalogueView"];
export type CatalogueChange = Schemas["CatalogueChange"];
export type NewActionRequest = Schemas["NewActionRequest"];
export type Log = Schemas["Log"];
export type Overview = Schemas["Overview"];

/** What a decision earned: of a list, the action that was clicked (null: none), or values of its actions. */
export type Reward = number | { clicked: string | null } | { values: Record<string, number> };

/** How a client behaves; all times are in milliseconds. */
export interface ClientOptions {
  /** The API key, sent as `Authorization: Bearer ...`. Keep it out of browsers. */
  key?: string;
  /** The time of one attempt, connection and body included. */
  timeoutMs?: number;
  /** The time of a whole call: all attempts and the pauses between them. */
  deadlineMs?: number;
  /** How often a request is sent again after its first attempt. */
  retries?: number;
  /** The most bytes of an answer that are read. */
  maxAnswerBytes?: number;
  /** The function that sends requests, if not the global `fetch`. */
  fetch?: typeof fetch;
}

/** The service refused a request: `status` is that of HTTP, `code` a word for programs. */
export class ServiceError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(status ? `${status} ${code}: ${message}` : message);
    this.name = "ServiceError"; // spelled out: a minifier renames classes
    this.status = status;
    this.code = code;
  }
}

/** No valid answer came in time; the service may have done the request all the same. */
export class NoAnswerError extends ServiceError {
  constructor(message: string) {
    super(0, "no_answer", message);
    this.name = "NoAnswerError";
  }
}

interface Reply {
  status: number; // 0: no answer came
  text: string; // the body, or why there is none
  pauseMs: number; // how long the service asks to wait
  final?: boolean; // another attempt would end in the same way
}

const TRY_AGAIN = [0, 408, 425, 429, 500, 502, 503, 504];
const FIRST_PAUSE_MS = 50; // doubled with every attempt, and drawn at random up to that
const MAX_BATCH = 100;
const MAX_PAGE = 1000;

/** The calls of the service, one method each. */
export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #deadlineMs: number;
  readonly #retries: number;
  readonly #maxAnswerBytes: number;
  readonly #fetch: typeof fetch;

  /** Make a client of the service at `url`, such as `https://bandits.example.org`. */
  constructor(url: string, options: ClientOptions = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = { "content-type": "application/json" };
    if (options.key !== undefined) this.#headers["authorization"] = `Bearer ${options.key}`;
    this.#timeoutMs = positive("timeoutMs", options.timeoutMs ?? 1000);
    this.#deadlineMs = positive("deadlineMs", options.deadlineMs ?? 4 * this.#timeoutMs);
    this.#retries = options.retries ?? 3;
    this.#maxAnswerBytes = positive("maxAnswerBytes", options.maxAnswerBytes ?? 64 * 2 ** 20);
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /**
   * Decide what a session gets next. `request` is the session's id, or a whole request. With `length`
   * in it, `actions` of the answer are an ordered list.
   *
   * With `default`, an action, the call never fails for lack of an answer: it returns that action,
   * marked by `fallback`, without a decision id (so it cannot be rewarded).
   */
  async decide(request: string | DecideRequest, options: { default?: string } = {}): Promise<Decided> {
    const body = identified(typeof request === "string" ? { session: request } : { ...request });
    const fallback = options.default ?? body.default ?? undefined;
    if (fallback !== undefined && body.actions?.includes(fallback)) body.default = fallback;
    try {
      return await this.#ask<Decided>("POST", "/v1/decide", body);
    } catch (error) {
      const passing = error instanceof ServiceError && TRY_AGAIN.includes(error.status);
      if (fallback === undefined || !passing) throw error;
      const decided = defaultDecision(fallback, body.actions?.indexOf(fallback) ?? -1);
      return body.length == null ? decided : { ...decided, actions: [fallback] };
    }
  }

  /** Decide for many sessions, 100 in a request; a refusal is an error in its place. */
  decideMany(requests: readonly (string | DecideRequest)[]): Promise<(Decided | ServiceError)[]> {
    const bodies = requests.map((one) => identified(typeof one === "string" ? { session: one } : { ...one }));
    return this.#each<Decided>("/v1/decide", bodies);
  }

  /** Report what a decision earned; a repeated report changes nothing. */
  reward(decisionId: string, reward: Reward, eventId?: string): Promise<Rewarded> {
    return this.#ask("POST", "/v1/reward", rewardOf(decisionId, reward, eventId));
  }

  /** Report many rewards, 100 in a request; a refusal is an error in its place. */
  rewardMany(
    rewards: readonly (readonly [decisionId: string, reward: Reward] | RewardRequest)[],
  ): Promise<(Rewarded | ServiceError)[]> {
    const bodies = rewards.map((one) => ("decision_id" in one ? one : rewardOf(one[0], one[1])));
    return this.#each<Rewarded>("/v1/reward", bodies);
  }

  /** Replace the reward of a decision; the session has then learned the new one instead. */
  correct(decisionId: string, reward: Reward, eventId: string = newId()): Promise<Rewarded> {
    return this.#ask("PUT", "/v1/reward", rewardOf(decisionId, reward, eventId));
  }

  /** Return a session: its belief and its latest decisions. */
  session(session: string): Promise<SessionView> {
    return this.#ask("GET", `/v1/sessions/${quoted(session)}`);
  }

  /** Forget everything about a session. */
  forget(session: string, requestId: string = newId()): Promise<Forgotten> {
    return this.#ask("DELETE", `/v1/sessions/${quoted(session)}?${query({ request_id: requestId })}`);
  }

  /** Merge two sessions of one user: from then on `other` is another name of `into`. */
  merge(into: string, other: string): Promise<SessionView> {
    return this.#ask("POST", "/v1/sessions/merge", { into, other });
  }

  /** Return the models of the service. */
  models(): Promise<Models> {
    return this.#ask("GET", "/v1/models");
  }

  /** Use another model from now on. */
  activate(request: ActivateRequest): Promise<Models> {
    return this.#ask("POST", "/v1/models/activate", identified({ ...request }));
  }

  /** Return the actions of the active model and their expected rewards. */
  catalogue(): Promise<CatalogueView> {
    return this.#ask("GET", "/v1/catalogue");
  }

  /** Return what each action of the active model earned lately, by state too. */
  actions(): Promise<ActionsEarned> {
    return this.#ask("GET", "/v1/actions");
  }

  /** Add actions to the active catalogue. */
  addActions(
    actions: NewActionRequest | NewActionRequest[],
    requestId: string = newId(),
  ): Promise<CatalogueChange> {
    return this.#ask("POST", `/v1/actions?${query({ request_id: requestId })}`, actions);
  }

  /** Retire an action of the active catalogue: it is never chosen again. */
  retireAction(action: string, requestId: string = newId()): Promise<CatalogueChange> {
    return this.#ask("DELETE", `/v1/actions/${quoted(action)}?${query({ request_id: requestId })}`);
  }

  /** Return what the service is doing, at a glance. */
  overview(): Promise<Overview> {
    return this.#ask("GET", "/v1/overview");
  }

  /** Return a page of the log; its `next` is the `since` of the page after it. */
  log(options: { since?: string; until?: string; limit?: number } = {}): Promise<Log> {
    return this.#ask("GET", `/v1/log?${query({ limit: MAX_PAGE, ...options })}`);
  }

  /** Return the ids of those decisions that were forgotten: copies of the log must drop them too. */
  async forgotten(decisions: readonly string[]): Promise<string[]> {
    const found: string[] = [];
    for (const part of parts(decisions, MAX_PAGE)) {
      const answer = await this.#ask<Schemas["ForgottenDecisions"]>("POST", "/v1/log/forgotten", {
        decisions: part,
      });
      found.push(...answer.forgotten);
    }
    return found;
  }

  async #each<Answer>(path: string, bodies: readonly object[]): Promise<(Answer | ServiceError)[]> {
    const answers: (Answer | ServiceError)[] = [];
    for (const part of parts(bodies, MAX_BATCH)) {
      const many = await this.#ask<(Answer | Schemas["ErrorBody"])[]>("POST", path, part);
      for (const one of many) {
        const refused = one as Partial<Schemas["ErrorBody"]>;
        answers.push(refused.error ? new ServiceError(422, refused.error.code, refused.error.message) : (one as Answer));
      }
    }
    return answers;
  }

  /** Send a request until there is an answer, a permanent error, no attempt or no time. */
  async #ask<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
    const content = body === undefined ? null : JSON.stringify(body);
    const until = performance.now() + this.#deadlineMs;
    for (let attempt = 0; ; attempt++) {
      const reply = await this.#send(method, path, content, until);
      if (reply.final || !TRY_AGAIN.includes(reply.status)) return read<Answer>(reply);
      const pause = Math.max(Math.random() * FIRST_PAUSE_MS * 2 ** attempt, reply.pauseMs);
      if (attempt === this.#retries || performance.now() + pause >= until) throw problem(reply);
      await new Promise((resume) => setTimeout(resume, pause));
    }
  }

  async #send(method: string, path: string, body: string | null, until: number): Promise<Reply> {
    const begun = performance.now();
    const end = new AbortController();
    const timer = setTimeout(() => end.abort(), Math.min(this.#timeoutMs, until - begun));
    try {
      const response = await this.#fetch(this.#url + path, {
        method,
        body,
        headers: this.#headers,
        signal: end.signal,
      });
      const text = await bounded(response, this.#maxAnswerBytes);
      if (text === null) {
        return this.#lost(`its answer has more than ${this.#maxAnswerBytes} bytes (maxAnswerBytes)`, true);
      }
      return { status: response.status, text, pauseMs: retryAfter(response.headers.get("retry-after")) };
    } catch (error) {
      const late = end.signal.aborted;
      const why = late ? `no answer within ${Math.round(performance.now() - begun)} ms` : causeOf(error);
      return this.#lost(why);
    } finally {
      clearTimeout(timer);
      end.abort(); // what is left of an answer is not read
    }
  }

  #lost(why: string, final = false): Reply {
    return { status: 0, text: `the service at ${this.#url} did not answer: ${why}`, pauseMs: 0, final };
  }
}

/**
 * Send the reward of a decision from a web page, also while the page is being left.
 *
 * `token` is the `reward_token` of the decision: it allows this one reward, so no key is needed in
 * the browser. The request is plain text and needs no preflight. The browser sends it even if the
 * page is gone by then, and nobody sees the answer.
 */
export function sendReward(url: string, decisionId: string, token: string, reward: Reward): void {
  const address = `${url.replace(/\/+$/, "")}/v1/reward`;
  const body = JSON.stringify({ ...rewardOf(decisionId, reward), token });
  const beacon = globalThis.navigator?.sendBeacon?.bind(globalThis.navigator);
  if (beacon?.(address, body)) return;
  const headers = { "content-type": "text/plain" };
  void fetch(address, { method: "POST", body, headers, keepalive: true }).catch(() => undefined);
}

function positive(name: string, value: number): number {
  if (!(value > 0)) throw new RangeError(`${name} must be above 0; got ${value}`);
  return value;
}

function identified<Body extends { request_id?: string | null }>(body: Body): Body {
  body.request_id ??= newId();
  return body;
}

function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID needs a secure context
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function rewardOf(decisionId: string, reward: Reward, eventId?: string): RewardRequest {
  const told = typeof reward === "number" ? { value: reward } : reward;
  const values = "values" in told ? Object.values(told.values) : "value" in told ? [told.value] : [];
  for (const value of values) {
    if (!Number.isFinite(value)) throw new RangeError(`a reward must be a finite number; got ${value}`);
  }
  return { decision_id: decisionId, ...told, ...(eventId === undefined ? {} : { event_id: eventId }) };
}

function quoted(text: string): string {
  return encodeURIComponent(text).replaceAll(".", "%2E"); // "." and ".." would name folders
}

function query(values: Record<string, string | number | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
}

function parts<Item>(items: readonly Item[], size: number): Item[][] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, i) => items.slice(i * size, (i + 1) * size));
}

function defaultDecision(action: string, index: number): Decided {
  return {
    decision_id: "",
    action,
    index,
    propensity: 1,
    propensity_kind: "exact",
    state_probabilities: [],
    model: "",
    policy: "default",
    round: 0,
    fallback: true,
  };
}

/** Return the body of an answer as text; null if it has too many bytes. */
async function bounded(response: Response, most: number): Promise<string | null> {
  if (response.body === null) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.byteLength;
    if (size > most) return null;
    text += decoder.decode(value, { stream: true });
  }
}

/** Return the milliseconds that a service asks to wait: seconds or a date (RFC 9110, 10.2.3). */
function retryAfter(header: string | null): number {
  if (header === null) return 0;
  if (/^\d{1,9}$/.test(header.trim())) return 1000 * Number(header);
  return Math.max(0, (Date.parse(header) || 0) - Date.now());
}

function causeOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  return cause instanceof Error ? cause.message : String(cause);
}

function read<Answer>(reply: Reply): Answer {
  if (reply.status < 200 || reply.status > 299) throw problem(reply);
  try {
    return JSON.parse(reply.text) as Answer;
  } catch (error) {
    throw new NoAnswerError(`the service's answer makes no sense: ${causeOf(error)}`);
  }
}

function problem(reply: Reply): ServiceError {
  if (reply.status === 0) return new NoAnswerError(reply.text);
  try {
    const { code, message } = (JSON.parse(reply.text) as Schemas["ErrorBody"]).error;
    return new ServiceError(reply.status, code, message);
  } catch {
    return new ServiceError(reply.status, "http", "the answer is not one of this service's");
  }
}
