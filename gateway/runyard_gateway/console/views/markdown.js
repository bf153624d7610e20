/** Markdown, rendered safely. While the text grows, finished blocks are not rendered again. */

import { blocksOf } from "../markdown/blocks.js";
import { safeFragment } from "../markdown/safe.js";
import { useLayoutEffect, useMemo, useRef } from "../vendor/preact-hooks.mjs";
import { html } from "./html.js";

export function Markdown({ text }) {
  const blocks = useMemo(() => blocksOf(text), [text]);
  return html`<div class="markdown">
    ${blocks.map((block, index) => html`<${Block} key=${index} block=${block} />`)}
  </div>`;
}

function Block({ block }) {
  const place = useRef(null);
  useLayoutEffect(() => place.current.replaceChildren(safeFragment(block.markup())), [block.source]);
  return html`<div ref=${place}></div>`;
}
