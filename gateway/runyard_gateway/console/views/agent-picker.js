/** A new conversation: which agent, and what it can do. */

import { useEffect } from "../vendor/preact-hooks.mjs";
import { FailureNotice } from "./failure-notice.js";
import { html } from "./html.js";
import { useStore } from "./use-store.js";
import { plural } from "./words.js";

export function AgentPicker({ page, conversation, agents }) {
  const { items, failure } = agents;
  const agent = useStore(conversation.store, (state) => state.agent);
  const chosen = items?.find(({ name }) => name === agent);
  useEffect(() => {
    // Who is faster than this effect has chosen already.
    if (items?.length > 0 && conversation.store.value.agent === null) conversation.choose(firstServed(items).name);
  }, [items, agent]);
  if (failure) return html`<${FailureNotice} failure=${failure} onRetry=${() => page.agents.refresh()} />`;
  if (items === null) return html`<p class="empty">Loading</p>`;
  if (items.length === 0) return html`<${NoAgents} />`;
  return html`<section class="picker">
    <h2>Choose an agent</h2>
    ${agent !== null && !chosen && html`<${Unknown} agent=${agent} />`}
    <fieldset class="agents">
      <legend class="visually-hidden">Agent</legend>
      ${items.map((item) => {
        const choose = () => page.chooseAgent(item.name);
        return html`<${Card} key=${item.name} item=${item} isChosen=${item.name === agent} onChoose=${choose} />`;
      })}
    </fieldset>
    ${chosen?.tools.length > 0 && html`<${Tools} agent=${chosen} />`}
  </section>`;
}

/** One that answers: a call of the others waits until a worker has them. */
const firstServed = (items) => items.find(({ liveWorkers }) => liveWorkers > 0) ?? items[0];

function Unknown({ agent }) {
  return html`<p class="note" role="alert">
    There is no agent <code>${agent}</code> that you may call. Choose another one.
  </p>`;
}

function Card({ item, isChosen, onChoose }) {
  return html`<label class="agent-card">
    <input type="radio" name="agent" value=${item.name} checked=${isChosen} onChange=${onChoose} />
    <span class="name">${item.name}</span>
    <span class="facts">
      ${item.tools.length > 0 ? plural(item.tools.length, "tool") : "no tools"}
      ${item.liveWorkers === 0 && html`, <span class="away">no worker alive</span>`}
    </span>
  </label>`;
}

function Tools({ agent }) {
  return html`<section class="tools">
    <h3>What ${agent.name} can use</h3>
    <dl>
      ${agent.tools.map(({ name, description }) => html`<div key=${name}>
        <dt><code>${name}</code></dt>
        <dd>${description}</dd>
      </div>`)}
    </dl>
  </section>`;
}

function NoAgents() {
  return html`<section class="picker">
    <h2>No agent yet</h2>
    <p class="note">No worker has registered one yet. Start a worker with a folder of agents, and they appear here.</p>
  </section>`;
}
