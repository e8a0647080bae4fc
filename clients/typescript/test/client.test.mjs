// The client against a real service, whose address and keys are in the environment, and against
// servers that answer badly. Run by tests/endtoend/test_typescript.py.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { after, test } from "node:test";
import { Client, NoAnswerError, ServiceError, sendReward } from "latentbandits";

const url = process.env.LATENTBANDITS_URL;
const client = new Client(url, { key: process.env.LATENTBANDITS_KEY, timeoutMs: 5000 });
const closing = [];
after(() => closing.forEach((close) => close()));

/** Return the address of a server that does this on each connection, after the first bytes came. */
function answering(answer) {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => answer(socket));
  });
  closing.push(() => server.close());
  return new Promise((listening) =>
    server.listen(0, "127.0.0.1", () => listening(`http://127.0.0.1:${server.address().port}`)),
  );
}

test("a decision, its reward, a correction, and what is known of the session", async () => {
  const decided = await client.decide("ann ü/.");
  assert.match(decided.decision_id, /./);
  assert.equal(decided.fallback, false);
  assert.equal((await client.reward(decided.decision_id, 1)).status, "applied");
  assert.equal((await client.reward(decided.decision_id, 1)).status, "duplicate");
  assert.equal((await client.correct(decided.decision_id, 0)).status, "applied");
  const seen = await client.session("ann ü/.");
  assert.equal(seen.round, 1);
  assert.equal((await client.forget("ann ü/.")).sessions, 1);
  await assert.rejects(client.session("ann ü/."), (error) => error.status === 404);
});

test("the same request id is the same decision", async () => {
  const request = { session: "same", request_id: "once" };
  const [first, second] = [await client.decide(request), await client.decide(request)];
  assert.equal(first.decision_id, second.decision_id);
  assert.equal((await client.decide("same")).round, 2);
});

test("batches: a refusal stands in its place", async () => {
  const many = await client.decideMany(["b0", { session: "b1", actions: ["nobody has this"] }, "b2"]);
  assert.deepEqual(many.map((one) => one instanceof ServiceError), [false, true, false]);
  assert.match(many[1].message, /nobody has this/);
  const rewards = await client.rewardMany([
    [many[0].decision_id, 1],
    { decision_id: many[2].decision_id, value: 0 },
  ]);
  assert.deepEqual(rewards.map((one) => one.status), ["applied", "applied"]);
  const more = await client.decideMany(Array.from({ length: 150 }, (_, i) => `many ${i}`));
  assert.equal(new Set(more.map((one) => one.decision_id)).size, 150);
});

test("a list, its rewards in two parts, and a list of the default", async () => {
  const decided = await client.decide({ session: "list", length: 2 });
  const [first, second] = decided.actions;
  assert.notEqual(first, second);
  assert.equal(decided.propensities.length, 2);
  assert.equal((await client.reward(decided.decision_id, { values: { [second]: 1 } })).status, "applied");
  const rest = { values: { [first]: 0.5 } };
  assert.equal((await client.reward(decided.decision_id, rest)).status, "applied");
  assert.equal((await client.correct(decided.decision_id, { values: { [first]: 0 } })).status, "applied");
  assert.equal((await client.session("list")).mean_reward, 1);
  await assert.rejects(client.reward(decided.decision_id, { clicked: first }), /for the click model cascade/);
  const away = new Client("http://127.0.0.1:1", { timeoutMs: 50, retries: 0 });
  const request = { session: "list", actions: ["tea", "mate"], length: 2 };
  assert.deepEqual((await away.decide(request, { default: "tea" })).actions, ["tea"]);
});

test("administrators' calls", async () => {
  await client.decide("one device");
  await client.decide("another device");
  assert.equal((await client.merge("one device", "another device")).session, "one device");
  const catalogue = await client.catalogue();
  assert.equal((await client.actions()).model, catalogue.model);
  const models = await client.models();
  assert.equal(models.models.some((model) => model.id === catalogue.model), true);
  assert.equal((await client.addActions({ id: "tea/green" })).actions.includes("tea/green"), true);
  await client.retireAction("tea/green");
  await client.activate({ model: catalogue.model, force: true });
  assert.equal((await client.overview()).counts.decisions > 0, true);
});

test("the log page by page, and what was forgotten", async () => {
  const decided = await client.decide("to be forgotten");
  await client.forget("to be forgotten");
  const seen = new Set();
  for (let page = await client.log({ limit: 7 }), end = page.end; ; ) {
    page.decisions.forEach((one) => seen.add(one.decision_id));
    const next = await client.log({ since: page.next, until: end, limit: 7 });
    if (next.decisions.length + next.rewards.length === 0) break;
    page = next;
  }
  assert.equal(seen.size > 100, true);
  assert.equal(seen.has(decided.decision_id), false);
  assert.deepEqual(await client.forgotten([decided.decision_id]), [decided.decision_id]);
});

test("a refusal says why; a wrong key is not retried", async () => {
  await assert.rejects(client.decide(""), (error) => error.status === 422 && error.code === "invalid");
  const stranger = new Client(url, { key: "lb_wrong", deadlineMs: 60_000, timeoutMs: 5000 });
  const begun = performance.now();
  await assert.rejects(stranger.decide("x", { default: "a" }), (error) => error.status === 401);
  assert.equal(performance.now() - begun < 20_000, true);
  await assert.rejects(async () => client.reward("x", NaN), RangeError);
  assert.throws(() => new Client(url, { timeoutMs: 0 }), /timeoutMs must be above 0; got 0/);
});

for (const [what, answer] of [
  ["says nothing", () => undefined],
  ["hangs up", (socket) => socket.destroy()],
  ["trickles headers", trickle("HTTP/1.1 201 Created\r\n" + "x-filler: y\r\n".repeat(50))],
  ["trickles a body", trickle("HTTP/1.1 201 Created\r\ncontent-length: 500\r\n\r\n" + " ".repeat(499))],
  ["makes no sense", (socket) => socket.end("HTTP/1.1 503 Busy\r\ncontent-length: 1\r\n\r\n?")],
]) {
  test(`a service that ${what}: the default comes by the deadline`, async () => {
    const away = new Client(await answering(answer), { timeoutMs: 100, deadlineMs: 300, retries: 9 });
    const begun = performance.now();
    const decided = await away.decide({ session: "x", actions: ["a", "b"] }, { default: "b" });
    assert.deepEqual([decided.action, decided.index, decided.fallback], ["b", 1, true]);
    assert.equal(performance.now() - begun < 4000, true); // it trickles for ten seconds
    await assert.rejects(away.decide("x"), ServiceError);
  });
}

function trickle(text) {
  return (socket) => {
    let sent = 0;
    const timer = setInterval(() => socket.write(text[sent++] ?? ""), 20);
    socket.on("close", () => clearInterval(timer));
    closing.push(() => clearInterval(timer));
  };
}

test("an answer without end is refused, and not asked for again", async () => {
  let asked = 0;
  const endless = await answering((socket) => {
    asked += 1;
    socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    const more = () => socket.destroyed || socket.write(`1000\r\n${" ".repeat(4096)}\r\n`, () => setImmediate(more));
    more();
  });
  const away = new Client(endless, { timeoutMs: 5000, maxAnswerBytes: 100_000 });
  await assert.rejects(away.models(), (error) => error instanceof NoAnswerError && /more than 100000 bytes/.test(error.message));
  assert.equal(asked, 1);
});

test("a lost answer is asked for again with the same id", async () => {
  const bodies = [];
  let calls = 0;
  const flaky = new Client(url, {
    key: process.env.LATENTBANDITS_KEY,
    timeoutMs: 5000,
    fetch: async (input, init) => {
      bodies.push(init.body);
      const answer = await fetch(input, init);
      if (calls++ === 0) throw new TypeError("connection lost");
      return answer;
    },
  });
  const decided = await flaky.decide("flaky");
  assert.equal(bodies.length, 2);
  assert.equal(bodies[0], bodies[1]);
  assert.equal(decided.round, 1);
});

test("a busy service's Retry-After is waited for", async () => {
  let calls = 0;
  const busy = new Client("http://nowhere.invalid", {
    fetch: async () =>
      calls++ === 0
        ? new Response("{}", { status: 503, headers: { "retry-after": "1" } })
        : Response.json({ active: null, models: [] }),
  });
  const begun = performance.now();
  await busy.models();
  assert.equal(performance.now() - begun >= 990, true);
});

test("sendReward without sendBeacon posts plain text", async () => {
  const decided = await client.decide({ session: "beacon", reward_token: true });
  sendReward(url, decided.decision_id, decided.reward_token, 1);
  for (let i = 0; i < 50; i++) {
    const seen = await client.session("beacon");
    if (seen.rewards === 1) return;
    await new Promise((resume) => setTimeout(resume, 100));
  }
  assert.fail("the reward did not arrive");
});
