// node play.mjs FOLDER-OF-RLX.JS ACTION ARGUMENTS-IN-JSON: prints the result as JSON.
import { pathToFileURL } from "node:url";
import * as actions from "./play.js";

const [folder, action, given] = process.argv.slice(2);
const { connect } = await import(pathToFileURL(`${folder}/rlx.js`));
const { CartPole } = await import(pathToFileURL(`${folder}/cartpole.js`));
const result = await actions[action]({ connect, CartPole }, ...JSON.parse(given));
console.log(JSON.stringify(result));
