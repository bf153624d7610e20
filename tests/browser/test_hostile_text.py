"""Text that wants to be more than text, wherever it may come from: it runs nothing, loads nothing, hides nothing."""

import re

import pytest
from playwright.async_api import expect
from tests.browser.console import Reader
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import says, thinks

pytestmark = [pytest.mark.anyio, on_sqlite]

ELSEWHERE = "http://127.0.0.1:9"

ATTACKS = f"""
<img src=x onerror="window.hacked = 1"><img src="{ELSEWHERE}/pixel.png">
<script>window.hacked = 2</script><script src="{ELSEWHERE}/script.js"></script>
<svg onload="window.hacked = 3"></svg><iframe src="{ELSEWHERE}/frame"></iframe>
<link rel="stylesheet" href="{ELSEWHERE}/sheet.css"><style>@import "{ELSEWHERE}/more.css";</style>
<p style="background: url({ELSEWHERE}/background.png)">styled</p><form action="{ELSEWHERE}"><input name=q></form>

[press](javascript:window.hacked=4) and <a href="javascript:window.hacked=5">press</a> [data](data:text/html,hello)

![a picture]({ELSEWHERE}/picture.png "title") and ![reference][far] and [![nested]({ELSEWHERE}/nested.png)](https://example.org/)

| a | b |
|---|---|
| <img src=y onerror="window.hacked = 6"> | `<b>` |

- [x] a task <input autofocus onfocus="window.hacked = 7">

[a good link](https://example.org/path?a=1&b=2) "quoted" &lt;entity&gt;

[far]: {ELSEWHERE}/far.png
"""

MARKUP = "img, script, svg, iframe, link, style, form, input, object, embed, [style], [onerror], [onload], [onfocus]"


async def test_a_models_text_is_only_text(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(
        thinks(ATTACKS).says(ATTACKS).calls("explode", {"text": ATTACKS}),
        says("```html\n<script>window.hacked = 8</script>\n```"),
    )
    console = await reader.opens("/?agent=clerk")
    page = console.page
    await console.say(ATTACKS)
    await console.ends()
    for _ in ("as it was followed", "from its rows"):
        await console.card("explode").locator("summary").click()
        for summary in await page.locator(".thinking summary").all():
            await summary.click()
        await expect(page.locator(".thinking .said").first).to_be_visible()
        assert await page.evaluate("window.hacked") is None
        assert await page.locator(":is(.answer, .input, .thinking .said, .source)").locator(MARKUP).count() == 0
        answer = await page.locator(".answer").first.inner_text()
        assert "<script>window.hacked = 2</script>" in answer
        assert "☑ a task" in answer
        hrefs = await page.locator(".answer a[href]").evaluate_all("links => links.map(link => link.href)")
        assert hrefs
        assert all(re.match(r"https?://", href) for href in hrefs)
        await page.reload()
        await console.ends()
    good = page.get_by_role("link", name="a good link")
    await expect(good).to_have_attribute("href", "https://example.org/path?a=1&b=2")
    await expect(good).to_have_attribute("rel", "noopener noreferrer nofollow")
    await expect(page.locator(".answer pre code")).to_have_text("<script>window.hacked = 8</script>\n")


async def test_names_and_titles_are_only_text(stack: Stack, reader: Reader) -> None:
    title = '<img src=x onerror="window.hacked = 1">'
    stack.standin.answers(says("Fine."))
    result = await reader.api.run("talker", title=title)
    console = await reader.opens(f"/?run={result['runId']}")
    await console.ends()
    await expect(console.page.locator(".head h1")).to_have_text(title)
    await expect(console.page.locator(".runs .words")).to_have_text(title)
    await expect(console.page).to_have_title(f"{title} · Runyard")
    assert await console.page.evaluate("window.hacked") is None


async def test_the_policy_holds_where_the_page_would_not(reader: Reader) -> None:
    """The second wall: even markup that got in could do nothing."""
    reader.foresees("Content Security Policy", "Trusted", "ERR_BLOCKED_BY_CSP")
    console = await reader.opens()
    page = console.page
    done = await page.evaluate(
        """async (elsewhere) => {
            const broken = [];
            const all = new Promise((resolve) => {
                document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
                    if (!broken.includes(effectiveDirective)) broken.push(effectiveDirective);
                    if (broken.length === 3) resolve();
                });
            });
            const image = document.createElement("img");
            const failed = new Promise((resolve) => (image.onerror = resolve));
            image.src = `${elsewhere}/pixel.png`;
            document.body.append(image);
            await failed;
            const fetched = await fetch(`${elsewhere}/data`).then(() => "loaded", () => "refused");
            let parsed = "parsed";
            try {
                document.body.insertAdjacentHTML("beforeend", "<b onclick='window.hacked = 1'>x</b>");
            } catch (error) {
                parsed = error.name;
            }
            await all;
            return { broken: broken.sort(), fetched, parsed };
        }""",
        ELSEWHERE,
    )
    assert done["fetched"] == "refused"
    assert done["parsed"] == "TypeError"
    assert done["broken"] == ["connect-src", "img-src", "require-trusted-types-for"]
    reader.foreign.clear()  # what the test itself tried
