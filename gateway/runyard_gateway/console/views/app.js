/** The whole page: the reader's runs at the side, one conversation in the middle. */

import { useEffect, useRef } from "../vendor/preact-hooks.mjs";
import { Chat } from "./chat.js";
import { FailureNotice } from "./failure-notice.js";
import { html } from "./html.js";
import { Sidebar } from "./sidebar.js";
import { TokenForm } from "./token-form.js";
import { useStore } from "./use-store.js";

/** @param {{page: import("../state/page.js").Page}} props */
export function App({ page }) {
  const { conversation, requests, needsToken, isMenuOpen, isOnline, failure } = useStore(page.store);
  useMenuFocus(isMenuOpen);
  useEffect(() => {
    const onKey = (event) => {
      if (event.key !== "Escape" || !page.store.value.isMenuOpen) return;
      event.preventDefault(); // it means the menu, and nothing behind it
      page.setMenu(false);
    };
    addEventListener("keydown", onKey, { capture: true });
    return () => removeEventListener("keydown", onKey, { capture: true });
  }, [page]);
  return html`<div class="app" data-menu=${isMenuOpen ? "open" : "closed"}>
    <a class="skip" href="#conversation">Skip to the conversation</a>
    <${Sidebar} page=${page} />
    <div class="veil" onClick=${() => page.setMenu(false)}></div>
    <main id="conversation" tabindex="-1">
      ${!isOnline && html`<${Offline} />`}
      ${failure && html`<${FailureNotice} failure=${failure} onDismiss=${() => page.dismissFailure()} />`}
      ${needsToken
        ? html`<${TokenForm} page=${page} />`
        : html`<${Chat} key=${conversation} page=${page} conversation=${conversation} requests=${requests} />`}
    </main>
  </div>`;
}

function Offline() {
  return html`<p class="offline" role="status">
    You are offline. Runs go on meanwhile; the page is brought up to date when the connection is back.
  </p>`;
}

/** The drawer of runs takes the focus when it opens, and gives it back when it closes. */
function useMenuFocus(isMenuOpen) {
  const before = useRef(null);
  useEffect(() => {
    if (isMenuOpen) {
      before.current = document.activeElement;
      document.querySelector("#sidebar button").focus();
    } else if (before.current?.isConnected) {
      before.current.focus();
      before.current = null;
    }
  }, [isMenuOpen]);
}
