/** A conversation: its head, its turns, and the place to write. */

import { useEffect } from "../vendor/preact-hooks.mjs";
import { AgentPicker } from "./agent-picker.js";
import { ChatHead } from "./chat-head.js";
import { Composer } from "./composer.js";
import { FailureNotice } from "./failure-notice.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Input } from "./parts.js";
import { Turn } from "./turn.js";
import { useEnd } from "./use-end.js";
import { useStore } from "./use-store.js";

/** @param {{page: import("../state/page.js").Page, conversation: import("../state/conversation.js").Conversation}} props */
export function Chat({ page, conversation }) {
  const state = useStore(conversation.store);
  const agents = useStore(page.agents.store);
  const { runId, groups, sending, failure, earlier } = state;
  const { scrolled, content, isAtEnd, goToEnd } = useEnd();
  const isNew = runId === null && sending === null;
  const words = titleOf(state);
  useEffect(() => {
    document.title = words === null ? "Runyard" : `${words} · Runyard`;
  }, [words]);
  return html`
    <${ChatHead} page=${page} state=${state} words=${words} />
    <div class="scrolled" ref=${scrolled}>
      <div class="column" ref=${content}>
        ${isNew && html`<${AgentPicker} page=${page} conversation=${conversation} agents=${agents} />`}
        ${runId !== null && groups.length === 0 && !state.live && !failure && html`<p class="empty">Loading</p>`}
        ${earlier !== null && html`<button type="button" class="plain more" onClick=${() => conversation.loadEarlier()}>Show what came before</button>`}
        ${turns(state, agents)}
        ${sending !== null && html`<article class="turn"><${Input} text=${sending} isWaiting=${true} /></article>`}
        ${failure && html`<${FailureNotice} failure=${failure} onRetry=${retry(conversation, state)} onDismiss=${() => conversation.dismissFailure()} />`}
      </div>
    </div>
    <div class="foot">
      ${!isAtEnd && html`<button type="button" class="to-end" onClick=${goToEnd}><${Icon} name="down" /> Latest</button>`}
      <${Composer} conversation=${conversation} state=${state} onSend=${goToEnd} />
    </div>
  `;
}

function turns({ groups, frames, outcomes, live, connection, agent }, agents) {
  const known = agents.items?.find(({ name }) => name === agent);
  const isAhead = live && !groups.some((group) => group.invocationId === live.invocationId); // of the transcript
  const shown = isAhead ? [...groups, { invocationId: live.invocationId, rows: NO_ROWS }] : groups;
  return shown.map(({ invocationId, rows }) => {
    const isLive = live?.invocationId === invocationId;
    return html`<${Turn}
      key=${invocationId ?? rows[0].seq}
      rows=${rows}
      frames=${frames[invocationId] ?? null}
      outcome=${outcomes[invocationId] ?? null}
      live=${isLive ? live : null}
      connection=${isLive ? connection : null}
      hasWorkers=${known === undefined || known.liveWorkers > 0}
    />`;
  });
}

const NO_ROWS = Object.freeze([]);

/** A run that could not be read, or whose stream was lost for good, is read again; what was not sent is in the composer. */
function retry(conversation, { runId, live }) {
  return runId !== null && live === null ? () => conversation.open() : undefined;
}

function titleOf({ run, groups, live, sending }) {
  const first = groups[0]?.rows[0].content;
  const words = run?.title ?? (typeof first === "string" ? first : null) ?? live?.input ?? sending;
  return words === null || words === undefined ? null : words.trim().split("\n")[0].slice(0, 120);
}
