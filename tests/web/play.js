/** What test_rlx_js.py plays, in a browser (play.html) and in Node.js (play.mjs). */

/** Numbers from 0 to 1 that are the same each time (a linear congruential generator). */
export function seeded(seed) {
  return () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

function sum(numbers) {
  return numbers.reduce((one, other) => one + other, 0);
}

/** Play `steps` steps with each of `agents` agents on one WebSocket; all at once. */
export async function play({ connect, CartPole }, url, agents, steps) {
  const proxy = await connect(url);
  const games = Array.from({ length: agents }, async (_, number) => {
    const agent = proxy.agent();
    const game = new CartPole(seeded(number));
    await agent.init(number % 2 === 1);
    const seen = { number, actions: 0, rewards: 0, episodes: 0, states: 0 };
    let state = game.reset();
    let action = await agent.update(null, new Float64Array([number, ...state]));
    for (let step = 0; step < steps; step++) {
      seen.actions += action;
      const { state, reward, terminal } = game.step(action);
      seen.rewards += reward;
      seen.states += sum(state);
      action = await agent.update(reward, [number, ...state], terminal);
      if (terminal) {
        seen.episodes += 1;
        action = await agent.update(null, [number, ...game.reset()]);
      }
    }
    await agent.metric("episodes", seen.episodes, number);
    await agent.reset();
    agent.disconnect();
    return seen;
  });
  const seen = await Promise.all(games);
  proxy.close();
  return { seen, closed: await proxy.closed };
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
  return "none";
}

/** What goes wrong, and what a page is told of it. */
export async function fail({ connect }, url, nobody) {
  const proxy = await connect(url);
  const [agent, other] = [proxy.agent(), proxy.agent()];
  const told = { early: await failure(agent.update(null, [0, 1])) };
  await Promise.all([agent.init(), other.init()]);
  told.nan = await failure(agent.update(NaN, [0, 1]));
  told.infinite = await failure(agent.update(0, { deep: [1, [2, Infinity]] }));
  told.typed = await failure(agent.update(0, new Float32Array([1, NaN])));
  told.raised = await failure(agent.update(0, "raise"));
  told.unsayable = await failure(agent.update(0, "nan"));
  told.array = await agent.update(0, "array");
  const waiting = failure(other.update(0, "wait"));
  other.disconnect();
  other.disconnect();
  told.disconnected = await waiting;
  told.later = await failure(other.init());
  told.fine = await agent.update(0, "array");
  const order = [1, 2, 3].map((number) => agent.update(number, "reward"));
  told.order = await Promise.all(order);
  const last = failure(agent.update(0, "wait"));
  proxy.close();
  told.last = await last;
  told.closed = await proxy.closed;
  told.after = await failure(proxy.agent().init());
  agent.disconnect();
  told.nobody = await failure(connect(nobody));
  told.bad = await failure(connect("no such thing:"));
  return told;
}
