/** A conversation: its head, its turns, and the place to write. */

import { functionOf } from "../conversation/functions.js";
import { standingOf } from "../conversation/standing.js";
import { inputsOf, isAhead } from "../conversation/waiting.js";
import { useEffect } from "../vendor/preact-hooks.mjs";
import { AgentPicker } from "./agent-picker.js";
import { Announcement } from "./announcement.js";
import { CallFoot } from "./call-foot.js";
import { ChatHead } from "./chat-head.js";
import { Composer } from "./composer.js";
import { FailureNotice } from "./failure-notice.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Input } from "./parts.js";
import { Turn } from "./turn.js";
import { useEnd } from "./use-end.js";
import { useStore } from "./use-store.js";
import { Waiting } from "./waiting.js";

const NO_ROWS = Object.freeze([]);

/**
 * @param {object} props
 * @param {import("../state/page.js").Page} props.page
 * @param {import("../state/conversation.js").Conversation} props.conversation
 * @param {import("../state/requests.js").Requests} props.requests
 */
export function Chat({ page, conversation, requests }) {
  const state = useStore(conversation.store);
  const agents = useStore(page.agents.store);
  const { runId, run, live, sending, failure, earlier } = state;
  const isNew = runId === null && sending === null;
  const { scrolled, content, isAtEnd, goToEnd } = useEnd(!isNew);
  const words = titleOf(state);
  useEffect(() => {
    document.title = words === null ? "Runyard" : `${words} · Runyard`;
  }, [words]);
  return html`
    <${ChatHead} page=${page} state=${state} words=${words} />
    <div class="scrolled" ref=${scrolled}>
      <div class="column" ref=${content}>
        ${isNew && html`<${AgentPicker} page=${page} conversation=${conversation} agents=${agents} />`}
        ${runId !== null && run === null && live === null && !failure && html`<p class="empty">Loading</p>`}
        ${earlier !== null && html`<${Earlier} conversation=${conversation} />`}
        ${turns(state, agents)}
        ${sending !== null &&
        live === null &&
        html`<article class="turn"><${Input} text=${sending} isWaiting=${true} /></article>`}
      </div>
    </div>
    <div class="foot">
      ${!isAtEnd && html`<${ToEnd} onClick=${goToEnd} />`}
      ${failure && html`<${ConversationFailure} conversation=${conversation} state=${state} />`}
      ${
        functionOf(state.agent) !== null
          ? html`<${CallFoot} requests=${requests} state=${state} />`
          : html`<${Waiting} requests=${requests} state=${state} />
              <${Composer} ...${{ conversation, requests, state }} onSend=${goToEnd} />`
      }
      <${Announcement} state=${state} />
    </div>
  `;
}

function turns(state, agents) {
  const { groups, frames, outcomes, live, connection, agent } = state;
  const known = agents.items?.find(({ name }) => name === agent);
  const shown = isAhead(state) ? [...groups, { invocationId: live.invocationId, rows: NO_ROWS }] : groups;
  const input = inputsOf(state).opening?.text ?? live?.input ?? null;
  return shown.map(({ invocationId, rows }) => {
    const isLive = live !== null && live.invocationId === invocationId;
    return html`<${Turn}
      key=${invocationId ?? `history-${rows[0].seq}`}
      rows=${rows}
      frames=${frames[invocationId] ?? null}
      outcome=${outcomes[invocationId] ?? null}
      standing=${isLive ? standingOf(state) : null}
      input=${isLive ? input : null}
      connection=${isLive ? connection : null}
      isFunction=${functionOf(agent) !== null}
      hasWorkers=${known === undefined || known.liveWorkers > 0}
    />`;
  });
}

function Earlier({ conversation }) {
  return html`<button type="button" class="plain more" onClick=${() => conversation.loadEarlier()}>
    Show what came before
  </button>`;
}

function ToEnd({ onClick }) {
  return html`<button type="button" class="to-end" onClick=${onClick}><${Icon} name="down" /> Latest</button>`;
}

/** A run that could not be read, or whose stream was lost for good, may be read again. */
function ConversationFailure({ conversation, state: { failure, runId, live } }) {
  const retry = runId !== null && live === null ? () => conversation.open() : undefined;
  const dismiss = () => conversation.dismissFailure();
  return html`<${FailureNotice} failure=${failure} onRetry=${retry} onDismiss=${dismiss} />`;
}

function titleOf({ agent, run, groups, live, sending }) {
  if (functionOf(agent) !== null) return run?.title ?? functionOf(agent);
  const first = groups[0]?.rows[0].content;
  const words = run?.title ?? (typeof first === "string" ? first : null) ?? live?.input ?? sending;
  return words === null || words === undefined ? null : words.trim().split("\n")[0].slice(0, 120);
}
