/** The page's icons, drawn as outlines in the colour of the text beside them. */

import { html } from "./html.js";

const SHAPES = Object.freeze({
  menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
  plus: ["M12 5v14", "M5 12h14"],
  send: ["M12 19V5", "M6 11l6-6 6 6"],
  stop: ["M7 7h10v10H7z"],
  back: ["M9 7L4 12l5 5", "M4 12h11a5 5 0 0 1 0 10h-2"],
  wait: ["M12 4a8 8 0 1 0 0 16 8 8 0 1 0 0-16z", "M12 8v4l3 2"],
  down: ["M12 5v14", "M6 13l6 6 6-6"],
  chevron: ["M9 6l6 6-6 6"],
  check: ["M5 12.5l4.5 4.5L19 7.5"],
  cross: ["M6 6l12 12", "M18 6L6 18"],
  alert: ["M12 4l9 16H3z", "M12 10v4", "M12 17v.5"],
  copy: ["M9 9h11v11H9z", "M5 15H4V4h11v1"],
  thought: ["M9 16c0-.8-.2-1.7-1-2.5a6 6 0 1 1 8 0c-.8.8-1 1.7-1 2.5z", "M10 20h4"],
  key: ["M8 12a4 4 0 1 0 0 8 4 4 0 1 0 0-8z", "M11 13l9-9", "M16 8l3 3"],
});

/** @param {{name: keyof typeof SHAPES}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    ${SHAPES[name].map((path) => html`<path d=${path} />`)}
  </svg>`;
}
