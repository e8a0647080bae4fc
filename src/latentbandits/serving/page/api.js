// Requests to the service that this page came from, also where it is mounted below a path.

const BASE = new URL("../", import.meta.url);
const KEPT = "latentbandits-key"; // until the tab is closed
const PATIENCE = 8000; // milliseconds

export class Unreachable extends Error {}

export class KeyNeeded extends Error {}

/** An answer that is not a success: `status`, `code`, and a message for people. */
export class Refused extends Error {
  constructor(status, { code, message }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function address(path) {
  return new URL(path, BASE).href;
}

export function useKey(key) {
  if (key === null) sessionStorage.removeItem(KEPT);
  else sessionStorage.setItem(KEPT, key);
}

export function hasKey() {
  return sessionStorage.getItem(KEPT) !== null;
}

export function get(path) {
  return ask("GET", path);
}

export function post(path, body) {
  return ask("POST", path, body);
}

async function ask(method, path, body) {
  const headers = { accept: "application/json" };
  const key = sessionStorage.getItem(KEPT);
  if (key !== null) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  let answer;
  try {
    response = await fetch(address(path), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE),
    });
    answer = await response.json();
  } catch {
    throw new Unreachable(`The service at ${BASE.host} does not answer.`);
  }
  if (response.ok) return answer;
  const problem = answer.error ?? { code: "http", message: `the service answered ${response.status}` };
  if (response.status === 401 || response.status === 403) throw new KeyNeeded(problem.message);
  throw new Refused(response.status, problem);
}
