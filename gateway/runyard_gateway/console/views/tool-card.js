/** One tool call: its input, what the tool wrote meanwhile, and its result. */

import { argumentWords, valueOf } from "../conversation/functions.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { pretty, prettyText, Source } from "./source.js";
import { durationWords } from "./words.js";

/**
 * @param {object} props
 * @param {object} props.call
 * @param {boolean} props.isLive its invocation goes on
 * @param {boolean} props.isFunction it is all that its run does: it lies open, and shows the value that its caller got
 */
export function ToolCard({ call, isLive, isFunction }) {
  const { name, words, icon } = stateOf(call, isLive);
  return html`<details class="card tool" data-state=${name} open=${isFunction}>
    <summary>
      <span class="mark">${icon}</span>
      <span class="name">${call.name}</span>
      <span class="brief">${argumentWords(call.input)}</span>
      <span class="aside">${words}</span>
      <span class="fold"><${Icon} name="chevron" /></span>
    </summary>
    <div class="inside">
      <${Source} label=${isFunction ? "Arguments" : "Input"} text=${pretty(call.input)} />
      ${call.outputs.length > 0 && html`<${Source} label="Output" text=${call.outputs.join("")} />`}
      ${call.events.map(({ name, data }) => html`<${Source} label=${`Event: ${name}`} text=${pretty(data)} />`)}
      ${call.result && (isFunction ? html`<${Value} result=${call.result} />` : html`<${Result} result=${call.result} />`)}
    </div>
  </details>`;
}

function stateOf(call, isLive) {
  const duration = call.durationMs === null ? "" : durationWords(call.durationMs);
  if (call.answered && call.isError) return state("error", `error ${duration}`, html`<${Icon} name="alert" />`);
  if (call.answered) return state("done", duration, html`<${Icon} name="check" />`);
  if (isLive) return state("running", "running", html`<span class="spinner"></span>`);
  return state("open", "no result", html`<${Icon} name="cross" />`);
}

function state(name, words, icon) {
  return { name, words, icon };
}

function Result({ result }) {
  return html`<${Source}
    label=${result.isError ? "Error" : "Result"}
    text=${resultText(result)}
    isError=${result.isError}
  />`;
}

function Value({ result }) {
  const found = valueOf(result);
  if (found === null) return html`<${Result} result=${result} />`;
  const text = typeof found.value === "string" ? found.value : pretty(found.value);
  return html`<${Source} label=${found.isError ? "Error" : "Output"} text=${text} isError=${found.isError} />`;
}

function resultText({ content }) {
  if (typeof content === "string") return prettyText(content);
  const texts = content.map((block) => (block.type === "text" ? prettyText(block.text) : pretty(withoutBytes(block))));
  return texts.join("\n\n");
}

/** A picture's or a document's data would fill the card with characters that nobody reads. */
function withoutBytes(block) {
  if (typeof block.source?.data !== "string") return block;
  return { ...block, source: { ...block.source, data: `${block.source.data.length} characters` } };
}
