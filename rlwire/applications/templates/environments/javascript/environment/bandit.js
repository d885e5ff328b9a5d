/** Four one-armed bandits: each pays 1 or costs 1, and the last one pays most often. */
const CHANCES = [0.4, 0.5, 0.6, 0.8];

export function pull(arm) {
  return Math.random() < CHANCES[arm] ? 1 : -1;
}
