/**
 * A client of rlwire's server for pages (and of RELAAX's proxy), for environments in JavaScript.
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
 * An ES module for browsers, and for runtimes that have WebSocket (Node.js from 22 on) or get one:
 * `connect(url, { WebSocket })`. docs/protocols/rlx.md has the messages.
 */

/** An error of the server, or a lost connection. */
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
    if (!WebSocket) throw new RLXError("this runtime has no WebSocket; give one as an option");
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
    // Browsers do not tell a page the reason.
    socket.onerror = socket.onclose = () =>
      fail(`cannot connect to ${url}: does it run, and is this page's origin allowed?`);
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
    // Never the same sid again, or a late reply could go to a later agent.
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
  #waiting = []; // replies have the order of the commands
  #over = "";

  constructor(send, forget) {
    this.#send = send;
    this.#forget = forget;
  }

  /** Initialize the agent, with `exploit` to act without exploring or learning. */
  async init(exploit = false) {
    await this.#ask({ command: "init", exploit });
  }

  /**
   * Send the result of the last action; return the next action, with arrays as nested lists.
   *
   * @param {number | null} reward null before the first action
   * @param {*} state numbers, texts, booleans, null, typed arrays, and lists and objects of them
   * @param {boolean} [terminal] whether the episode has ended
   */
  async update(reward, state, terminal = false) {
    return (await this.#ask({ command: "update", reward, state, terminal })).data;
  }

  /** Have the agent forget the episode. */
  async reset() {
    await this.#ask({ command: "reset" });
  }

  /** Send a measurement; `method` is "scalar" or "histogram", x is null if the server counts. */
  async metric(name, y, x = null, method = "scalar") {
    await this.#ask({ command: "update_metrics", data: [{ method, name, y, x }] });
  }

  /** Close the agent; pending commands fail. */
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

  /** For `Connection`: a reply. */
  _take(reply) {
    const { resolve, reject } = this.#waiting.shift() ?? {};
    if (reply.response === "error") reject?.(new RLXError(reply.message));
    else resolve?.(reply);
  }

  /** For `Connection`: no more replies. */
  _lost(reason) {
    this.#over = reason;
    for (const { reject } of this.#waiting.splice(0)) reject(new RLXError(reason));
  }
}

/** For JSON.stringify: rejects NaN and infinities, sends typed arrays as lists. */
function plain(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`${value} (at ${JSON.stringify(name)}) cannot be sent: JSON has no such number`);
  }
  return ArrayBuffer.isView(value) && !(value instanceof DataView) ? Array.from(value) : value;
}
