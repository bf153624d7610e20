"""Makes sure that there is a Chromium, which the console's tests drive."""

from scripts.programs import Program, provide

CHROMIUM = Program(
    title="Chromium",
    variable="RUNYARD_TEST_CHROMIUM",
    names=("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"),
    package="chromium",
)


if __name__ == "__main__":
    provide(CHROMIUM)
