/**
 * A client for environments in JavaScript: of rlwire's server for pages, and of RELAAX's proxy.
 *
 *     import { connect } from "./rlx.js";
 *
 *     const proxy = await connect("ws://localhost:9000");
 *     const agent = proxy.agent(); // any number, on one WebSocket
 *     await agent.init();
 *     let action = await agent.update(null, state);
 *     action = await agent.update(reward, nextState);
 *     await agent.update(reward, lastState, true);
 *     agent.disconnect();
 *     proxy.close();
 *
 * An ES module for browsers and for other runtimes with WebSocket (Node.js 22 or newer). Elsewhere
 * pass one: `connect(url, { WebSocket })`. docs/protocols/rlx.md describes the messages.
 */

/** The server replied with an error, or the connection was lost. */
export class RLXError extends Error {
  constructor(message) {
    super(message);
    this.name = "RLXError";
  }
}

/**
 * Connect to a server; `timeout` is in milliseconds. Rejects with RLXError.
 *
 * @returns {Promise<Connection>}
 */
export function connect(url, { timeout = 10_000, WebSocket = globalThis.WebSocket } = {}) {
  return new Promise((resolve, reject) => {
    if (!WebSocket) throw new RLXError("no WebSocket here: pass connect(url, { WebSocket })");
    const socket = new WebSocket(url);
    const timer = setTimeout(() => fail(`no connection to ${url} within ${timeout} ms`), timeout);
    const fail = (reason) => {
      clearTimeout(timer);
      socket.onopen = socket.onerror = socket.onclose = null;
      socket.close();
      reject(new RLXError(reason));
    };
    socket.onopen = () => {
      clearTimeout(timer);
      socket.onerror = null; // `onclose` follows
      resolve(new Connection(socket));
    };
    // Browsers hide the reason from pages.
    socket.onerror = socket.onclose = () =>
      fail(`cannot connect to ${url}: check that it runs and allows this page's origin`);
  });
}

/** A WebSocket to a server; made by `connect`. */
class Connection {
  #socket;
  #agents = new Map();
  #nextSid = 0;

  constructor(socket) {
    this.#socket = socket;
    /** @type {Promise<{code: number, reason: string}>} */
    this.closed = new Promise((resolve) => {
      socket.onclose = ({ code, reason }) => {
        for (const agent of this.#agents.values()) {
          agent._lost(`the proxy's connection is closed: ${code} ${reason}`.trimEnd());
        }
        this.#agents.clear();
        resolve({ code, reason });
      };
    });
    socket.onmessage = ({ data }) => {
      const reply = JSON.parse(data);
      this.#agents.get(reply.sid)?._take(reply);
    };
  }

  /** Return a new agent. */
  agent() {
    // No sid is used again: a late reply would reach the wrong agent.
    const sid = this.#nextSid++;
    const agent = new Agent(
      (message) => this.#send({ sid, ...message }),
      () => this.#agents.delete(sid),
    );
    this.#agents.set(sid, agent);
    return agent;
  }

  /** Close the WebSocket. */
  close() {
    this.#socket.close(1000);
  }

  #send(message) {
    const text = JSON.stringify(message, plain);
    if (this.#socket.readyState !== 1) throw new RLXError("the proxy's connection is closed");
    this.#socket.send(text);
  }
}

/** An agent; made by `Connection.agent`. */
class Agent {
  #send;
  #forget;
  #waiting = []; // replies arrive in the order of the commands
  #over = "";

  constructor(send, forget) {
    this.#send = send;
    this.#forget = forget;
  }

  /** Initialize the agent; with `exploit` it neither explores nor learns. */
  async init(exploit = false) {
    await this.#ask({ command: "init", exploit });
  }

  /**
   * Send the result of the last action; return the next action, with arrays as nested lists.
   *
   * @param {number | null} reward null before the first action
   * @param {*} state numbers, strings, booleans, null, typed arrays, and arrays and objects of them
   * @param {boolean} [terminal] whether the episode has ended
   */
  async update(reward, state, terminal = false) {
    return (await this.#ask({ command: "update", reward, state, terminal })).data;
  }

  /** Reset the agent, which discards the episode. */
  async reset() {
    await this.#ask({ command: "reset" });
  }

  /** Report a metric; `method` is "scalar" or "histogram". If x is null, the server counts. */
  async metric(name, y, x = null, method = "scalar") {
    await this.#ask({ command: "update_metrics", data: [{ method, name, y, x }] });
  }

  /** Disconnect the agent; pending commands reject with RLXError. */
  disconnect() {
    if (this.#over) return;
    try {
      this.#send({ command: "disconnect" });
    } catch (error) {
      if (!(error instanceof RLXError)) throw error; // the connection is closed already
    }
    this.#forget();
    this._lost("the agent has been disconnected");
  }

  #ask(message) {
    return new Promise((resolve, reject) => {
      if (this.#over) throw new RLXError(this.#over);
      this.#send(message);
      this.#waiting.push({ resolve, reject });
    });
  }

  /** Settle the oldest command; `Connection` calls it with the reply. */
  _take(reply) {
    const { resolve, reject } = this.#waiting.shift() ?? {};
    if (reply.response === "error") reject?.(new RLXError(reply.message));
    else resolve?.(reply);
  }

  /** Reject all commands; `Connection` calls it at its end. */
  _lost(reason) {
    this.#over = reason;
    for (const { reject } of this.#waiting.splice(0)) reject(new RLXError(reason));
  }
}

/** JSON.stringify's replacer: throws on NaN and infinities, converts typed arrays to lists. */
function plain(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`${value} (at ${JSON.stringify(name)}) cannot be sent: JSON has no such number`);
  }
  return ArrayBuffer.isView(value) && !(value instanceof DataView) ? Array.from(value) : value;
}
