/** Templates: `html` makes Preact's nodes, which set text and attributes and never parse markup. */

import htm from "../vendor/htm.mjs";
import { h } from "../vendor/preact.mjs";

export const html = htm.bind(h);
