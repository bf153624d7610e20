/** The sidebar: a new conversation, the reader's runs and token. On a narrow page it is a drawer. */

import { hrefOf } from "../state/address.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { RunList } from "./run-list.js";
import { useStore } from "./use-store.js";

export function Sidebar({ page }) {
  const { conversation, hasToken, isMenuOpen } = useStore(page.store);
  const begin = (event) => {
    event.preventDefault();
    page.newConversation(conversation.store.value.agent);
  };
  return html`<aside id="sidebar" class=${isMenuOpen ? "is-open" : ""} aria-label="Runs">
    <div class="brand">
      <img src="console/icon.svg" alt="" width="24" height="24" />
      <span>Runyard</span>
      <button
        type="button"
        class="quiet only-narrow"
        aria-label="Close the list of runs"
        onClick=${() => page.setMenu(false)}
      >
        <${Icon} name="cross" />
      </button>
    </div>
    <a class="new" href=${hrefOf({})} onClick=${begin}><${Icon} name="plus" /> New chat</a>
    <${RunList} key=${page.runs} page=${page} />
    ${hasToken && html`<div class="account">
      <${Icon} name="key" />
      <span>Token in use</span>
      <button type="button" class="plain" onClick=${() => page.forgetToken()}>Forget</button>
    </div>`}
  </aside>`;
}
