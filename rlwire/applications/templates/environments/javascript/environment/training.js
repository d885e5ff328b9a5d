/** Plays the bandits; settings are those of app.yaml, which serve.py gives. */
import { connect } from "./rlx.js";
import { pull } from "./bandit.js";

const settings = await (await fetch("settings.json")).json();
const log = document.getElementById("log");

try {
  const proxy = await connect(settings.proxy);
  const agent = proxy.agent();
  await agent.init(settings.exploit);
  log.textContent = "";
  for (let number = 0; number < settings.max_episodes; number++) {
    let total = 0;
    let arm = await agent.update(null, []);
    for (let step = 0; step < settings.steps; step++) {
      const reward = pull(arm);
      total += reward;
      arm = await agent.update(reward, []);
    }
    await agent.metric("episode_reward", total / settings.steps);
    log.textContent += `episode ${number}: ${total / settings.steps} a pull, the last of arm ${arm}\n`;
  }
  proxy.close();
  log.textContent += "done\n";
} catch (error) {
  log.textContent += `${error}\n`;
}
