/** A selected part of a store's value. The view is rendered again when that part changes. */

import { useLayoutEffect, useReducer, useRef } from "../vendor/preact-hooks.mjs";

/** @param {(value: object) => unknown} take what the view looks at; the same function, or one that takes the same */
export function useStore(store, take = whole) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const taken = take(store.value);
  const drawn = useRef(taken);
  drawn.current = taken;
  useLayoutEffect(() => {
    const compare = () => take(store.value) !== drawn.current && redraw();
    compare(); // it may have changed between the drawing and the watch
    return store.watch(compare);
  }, [store]);
  return taken;
}

function whole(value) {
  return value;
}
