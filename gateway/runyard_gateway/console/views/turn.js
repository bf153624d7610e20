/** One invocation: the input, everything that the agent did and said, and how it ended or its present state. */

import { turnParts } from "../conversation/turn.js";
import { useMemo } from "../vendor/preact-hooks.mjs";
import { Ending } from "./ending.js";
import { html } from "./html.js";
import { Markdown } from "./markdown.js";
import { Event, Input, OtherBlock, Thinking } from "./parts.js";
import { Progress } from "./progress.js";
import { prettyText, Source } from "./source.js";
import { ToolCard } from "./tool-card.js";

/**
 * @param {object} props
 * @param {object[]} props.rows
 * @param {object | null} props.frames
 * @param {object | null} props.outcome how it ended, as the API told; the frames may know it too
 * @param {string | null} props.standing how it stands while it is followed
 * @param {string | null} props.input what it begins with, for as long as no row holds it
 * @param {object | null} props.connection why the stream is broken off
 * @param {boolean} props.isFunction its input is the arguments of one call, which a card shows
 * @param {boolean} props.hasWorkers
 */
export function Turn({ rows, frames, outcome, standing, input, connection, isFunction, hasWorkers }) {
  // The same nodes again are not compared: a turn that has not changed costs nothing while another one grows.
  return useMemo(() => {
    const parts = turnParts(rows, frames, outcome?.records);
    const ended = frames?.outcome ?? outcome;
    const isLive = standing !== null && !frames.outcome;
    const isWriting = parts.at(-1)?.kind === "text";
    const answer = parts.filter((part) => part.kind === "text").map((part) => part.text);
    return html`<article class="turn" aria-busy=${isLive}>
      ${input !== null && rows.length === 0 && drawnInput(input, isFunction)}
      ${keyed(parts).map(([key, part]) => drawn(key, part, { isLive, isLast: part === parts.at(-1), isFunction }))}
      ${isLive && html`<${Progress} ...${{ standing, frames, connection, hasWorkers, isWriting }} />`}
      ${!isLive && ended && html`<${Ending} outcome=${ended} answer=${answer} isFunction=${isFunction} />`}
    </article>`;
  }, [rows, frames, outcome, standing, input, connection, isFunction, hasWorkers]);
}

/** A part that moves from the stream into the transcript keeps its key, and so its place and what is unfolded in it. */
function keyed(parts) {
  const counts = {};
  return parts.map((part) => {
    counts[part.kind] = (counts[part.kind] ?? 0) + 1;
    return [part.kind === "call" ? `call-${part.id}` : `${part.kind}-${counts[part.kind]}`, part];
  });
}

/** Before there is a card for it. */
function drawnInput(text, isFunction) {
  return isFunction ? html`<${Source} label="Arguments" text=${prettyText(text)} />` : html`<${Input} text=${text} />`;
}

function drawn(key, part, { isLive, isLast, isFunction }) {
  switch (part.kind) {
    case "input":
      return isFunction ? null : html`<${Input} key=${key} text=${part.text} />`;
    case "text":
      return html`<div key=${key} class="answer"><${Markdown} text=${part.text} /></div>`;
    case "thinking":
      return html`<${Thinking} key=${key} text=${part.text} isActive=${isLive && isLast} />`;
    case "call":
      return html`<${ToolCard} key=${key} call=${part} isLive=${isLive} isFunction=${isFunction} />`;
    case "event":
      return html`<${Event} key=${key} name=${part.name} data=${part.data} />`;
    case "block":
      return html`<${OtherBlock} key=${key} block=${part.block} />`;
  }
}
