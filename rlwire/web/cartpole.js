/** CartPole, with the equations, constants and bounds of Gymnasium's CartPole-v1. */
export class CartPole {
  static GRAVITY = 9.8;
  static CART = 1.0; // kg
  static POLE = 0.1; // kg
  static HALF = 0.5; // m, from the joint to the pole's centre
  static FORCE = 10.0; // N
  static DT = 0.02; // s
  static TRACK = 2.4; // m, to either side
  static ANGLE = (12 * Math.PI) / 180;
  static STEPS = 500;

  constructor(random = Math.random) {
    this.random = random;
    this.reset();
  }

  /** Start an episode; returns [position, velocity, angle, angular velocity], in m, s and rad. */
  reset() {
    this.steps = 0;
    this.state = Array.from({ length: 4 }, () => this.random() * 0.1 - 0.05);
    return [...this.state];
  }

  /** Push the cart left (0) or right (1) for DT; returns { state, reward, terminal }. */
  step(action) {
    if (action !== 0 && action !== 1) throw new TypeError(`action must be 0 or 1, not ${action}`);
    const { GRAVITY, CART, POLE, HALF, FORCE, DT, TRACK, ANGLE, STEPS } = CartPole;
    let [x, v, angle, spin] = this.state;
    const [sin, cos] = [Math.sin(angle), Math.cos(angle)];
    const pushed = ((action ? FORCE : -FORCE) + POLE * HALF * spin * spin * sin) / (CART + POLE);
    const spinning =
      (GRAVITY * sin - cos * pushed) / (HALF * (4 / 3 - (POLE * cos * cos) / (CART + POLE)));
    const moving = pushed - (POLE * HALF * spinning * cos) / (CART + POLE);
    x += DT * v;
    v += DT * moving;
    angle += DT * spin;
    spin += DT * spinning;
    this.state = [x, v, angle, spin];
    this.steps += 1;
    const fallen = Math.abs(x) > TRACK || Math.abs(angle) > ANGLE;
    return { state: [...this.state], reward: 1, terminal: fallen || this.steps >= STEPS };
  }
}
