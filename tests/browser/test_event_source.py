"""A browser's own EventSource, with the lines that the README has for it."""

import re
from pathlib import Path

import pytest
from tests.browser.console import Reader
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import fail, says

pytestmark = [pytest.mark.anyio, on_sqlite]

README = Path(__file__).parents[2] / "README.md"
READ = """async ([script, stream]) => {
    const [source, answer] = new Function("stream", `${script}; return [source, () => answer]`)(stream);
    await new Promise((resolve) => {
        const look = () => source.readyState === EventSource.CLOSED ? resolve() : setTimeout(look, 10);
        look();
    });
    return answer();
}"""

LOOKALIKES = ('{"seq":', '1,"role":"user"}', '{"seq":7,"role":"assistant"}', "a\r\nb", '{"seq": 1}', " {", "🙂 end")


async def test_answer_text_is_told_from_rows(stack: Stack, reader: Reader) -> None:
    (script,) = re.findall(r"```js\n(.*?)```", README.read_text(), re.DOTALL)
    stack.standin.answers(
        says("This is withdrawn. 🙂").then(fail("overloaded_error")),
        says("Kept 🙂").calls("look_up", {"order": "1"}),
        says(*LOOKALIKES),
    )
    reader.foresees("favicon.ico")
    async with stack.starting_gateway(RUNYARD_AUTH="dev") as gateway:
        base_url = f"http://{gateway.host}:{gateway.port}"
        result = await gateway.anonymous().run("clerk")
        reader.origins.add(base_url)
        page = await reader.context.new_page()
        await page.goto(f"{base_url}/healthz")
        assert await page.evaluate(READ, [script, result["streamId"]]) == "Kept 🙂" + "".join(LOOKALIKES)
        await page.close()
