/** Starts the page. */

import { Page } from "./state/page.js";
import { options, render } from "./vendor/preact.mjs";
import { App } from "./views/app.js";
import { html } from "./views/html.js";

// However many frames come, the page is drawn as often as the screen is.
options.debounceRendering = requestAnimationFrame;

const page = new Page();
page.start();
render(html`<${App} page=${page} />`, document.getElementById("page"));
