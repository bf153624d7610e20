import pytest
from tests.deploy.manifests import K8S, OVERLAYS, VARIANTS, Manifest, build, write_variant


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Manifest]]:
    """The objects of each overlay and variant, by its name."""
    objects = {name: build(K8S / "overlays" / name) for name in OVERLAYS}
    for name, parts in VARIANTS.items():
        folder = tmp_path_factory.mktemp(name)
        write_variant(folder, **parts)
        objects[name] = build(folder)
    return objects


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest, rendered: dict[str, list[Manifest]]) -> list[Manifest]:
    """Those of one overlay after the other."""
    return rendered[request.param]
