/**
 * A client of rlwire's RLX proxy (and of RELAAX's own), for environments written in JavaScript.
 *
 *     import { connect } from "./rlx.js";
 *
 *     const proxy = await connect("ws://localhost:9000");
 *     const agent = proxy.agent();              // as many as you like, on one WebSocket
 *     await agent.init();
 *     let action = await agent.update(null, state);
 *     action = await agent.update(reward, nextState);
 *     await agent.update(reward, lastState, true);             // the episode has ended
 *     await agent.reset();
 *     agent.disconnect();
 *     proxy.close();
 *
 * An ES module for browsers, and for other runtimes that have WebSocket (Node.js from 22 on) or are
 * given one: `connect(url, { WebSocket })`. Source: RELAAX's JSON form of RLX, as documented in
 * docs/protocols/rlx.md.
 */

/** What went wrong: the server's own words, or that the connection is lost. */
export class RLXError extends Error {
  constructor(message) {
    super(message);
    this.name = "RLXError";
  }
}

/**
 * Connect to a proxy.
 *
 * @param {string} url such as "ws://localhost:9000"
 * @param {object} [options]
 * @param {number} [options.timeout] milliseconds until it is given up
 * @param {typeof WebSocket} [options.WebSocket] for runtimes without one
 * @returns {Promise<Connection>}
 * @throws {RLXError} it cannot be reached, or does not let this page in
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
      socket.onerror = null; // from here on `onclose` comes after it
      resolve(new Connection(socket));
    };
    // Browsers do not tell a page why. Node.js 20 says no more than `onerror`.
    socket.onerror = socket.onclose = () =>
      fail(`cannot connect to ${url}: is it there, and is this page allowed?`);
  });
}

/** A WebSocket to a proxy; made by `connect`. */
class Connection {
  #socket;
  #agents = new Map();
  #nextSid = 0;

  constructor(socket) {
    this.#socket = socket;
    /** @type {Promise<{code: number, reason: string}>} resolved when the WebSocket is closed */
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
      // What comes for an agent that has disconnected meanwhile is for nobody.
      this.#agents.get(reply.sid)?._take(reply);
    };
  }

  /** Return a new agent. Nothing is sent before its `init`. */
  agent() {
    // Never the same sid again, so that no late reply can go to a later agent.
    const sid = this.#nextSid++;
    const agent = new Agent(
      (message) => this.#send({ sid, ...message }),
      () => this.#agents.delete(sid),
    );
    this.#agents.set(sid, agent);
    return agent;
  }

  /** Close the WebSocket; all its agents end. */
  close() {
    this.#socket.close(1000);
  }

  #send(message) {
    const text = JSON.stringify(message, plain);
    if (this.#socket.readyState !== 1) throw new RLXError("the proxy's connection is closed");
    this.#socket.send(text);
  }
}

/** An agent of an RLX server, as an environment sees it; made by `Connection.agent`. */
class Agent {
  #send;
  #forget;
  #waiting = []; // for replies, which come in the order of the commands
  #over = "";

  constructor(send, forget) {
    this.#send = send;
    this.#forget = forget;
  }

  /**
   * Have an agent made, or begin again with another `exploit`.
   *
   * @param {boolean} [exploit] whether it shall use what it knows instead of learning
   */
  async init(exploit = false) {
    await this.#ask({ command: "init", exploit });
  }

  /**
   * Tell the agent what the last action led to, and get the next one.
   *
   * @param {number | null} reward null when there was no action before
   * @param {*} state numbers, texts, booleans, null, typed arrays, and lists and objects of them
   * @param {boolean} [terminal] whether the episode has ended with this state
   * @returns {Promise<*>} the action, with arrays as nested lists; it means nothing after the last
   *   state of an episode
   */
  async update(reward, state, terminal = false) {
    return (await this.#ask({ command: "update", reward, state, terminal })).data;
  }

  /** Tell the agent that an episode was broken off. */
  async reset() {
    await this.#ask({ command: "reset" });
  }

  /**
   * Send a measurement to the server's metrics.
   *
   * @param {string} name
   * @param {*} y
   * @param {number | null} [x] null lets the server count
   * @param {"scalar" | "histogram"} [method]
   */
  async metric(name, y, x = null, method = "scalar") {
    await this.#ask({ command: "update_metrics", data: [{ method, name, y, x }] });
  }

  /** End the agent. What still waits for an answer fails. */
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

  /** For `Connection`: a reply has come. */
  _take(reply) {
    const { resolve, reject } = this.#waiting.shift() ?? {};
    if (reply.response === "error") reject?.(new RLXError(reply.message));
    else resolve?.(reply);
  }

  /** For `Connection`: no reply will come any more. */
  _lost(reason) {
    this.#over = reason;
    for (const { reject } of this.#waiting.splice(0)) reject(new RLXError(reason));
  }
}

/** What JSON.stringify does not do as an environment wants it. */
function plain(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`${value} (at ${JSON.stringify(name)}) cannot be sent: JSON has no such number`);
  }
  return ArrayBuffer.isView(value) && !(value instanceof DataView) ? Array.from(value) : value;
}
