/** The caller's token, kept for this tab only, until it is closed. */

const KEY = "runyard.token";

export function storedToken() {
  return sessionStorage.getItem(KEY);
}

export function storeToken(token) {
  sessionStorage.setItem(KEY, token);
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}
