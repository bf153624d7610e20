/** Asks for a token where the gateway wants one. */

import { html } from "./html.js";
import { useStore } from "./use-store.js";

export function TokenForm({ page }) {
  const { hasToken } = useStore(page.store);
  const { failure } = useStore(page.agents.store);
  const submit = (event) => {
    event.preventDefault();
    page.useToken(event.currentTarget.elements.token.value.trim());
  };
  return html`<form class="token" onSubmit=${submit}>
    <h1>This gateway asks for a token</h1>
    <p>
      Paste a JSON Web Token. It is kept in this tab only, until you close it, and sent as${" "}
      <code>Authorization: Bearer</code>.
    </p>
    ${hasToken && failure && html`<p class="refused" role="alert"><code>${failure.code}</code> ${failure.message}</p>`}
    <label for="token">Token</label>
    <input id="token" type="password" autocomplete="off" spellcheck="false" required />
    <button type="submit" class="primary">Use this token</button>
  </form>`;
}
