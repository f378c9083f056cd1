"""Pictures of the lab in `docs/pictures/lab`: desktop, phone and dark. After `poe docs`, with Chromium:

PYTHONPATH=tests uv run python docs/site/lab_pictures.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from support.lab.chromium import Tab, opened_tab, served

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "out" / "site" / "docs" / "lab"
PICTURES = ROOT / "docs" / "pictures" / "lab"
RUN = "seed=7&members=replica&nodes=3&profile=quiet&do=3000.isolate.2"
SHARE = 0.6
"""The pictures are stored at this scale."""


def take(tab: Tab, name: str) -> None:
    """Store one picture."""
    png = ROOT / "out" / f"lab-{name}.png"
    tab.picture(png)
    with Image.open(png) as shown:
        size = (round(shown.width * SHARE), round(shown.height * SHARE))
        shown.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(
            PICTURES / f"{name}.webp", quality=75, method=6
        )


def main() -> None:
    """Take all pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, served(SITE) as address, opened_tab(Path(folder)) as tab:
        tab.look_like(1280, 1300)
        tab.open(f"{address}/index.html#{RUN}")
        tab.until("window.lab")
        tab.evaluate(
            "lab.run.advance(5200, 3000).then(() => lab.run.show(lab.run.moments.findIndex(one => one.at_ms > 4945)))"
        )
        take(tab, "desktop")
        tab.look_like(1280, 1300, is_dark=True)
        take(tab, "dark")
        tab.look_like(390, 1500, is_phone=True)
        tab.evaluate("lab.run.show(lab.run.cursor)")
        take(tab, "phone")


if __name__ == "__main__":
    main()
