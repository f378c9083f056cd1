"""Pictures of the README and of five pages of the site, as a desktop and a phone show them.

    uv run poe docs && uv run poe pictures

writes one file for each page into `docs/pictures/pages`: 1,280 pixels wide in the light colours, and beside it 420
pixels wide in the dark ones. Chromium has no window of 420 pixels, so both are frames of one page.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "out" / "site"
PICTURES = ROOT / "docs" / "pictures" / "pages"
PAGES = {
    "readme": "README.html",
    "overview": "docs/README.html",
    "tutorial": "docs/tutorials/your-first-kafka-test.html",
    "how-to": "docs/howto/what-is-wrong-with-a-quorum.html",
    "reference": "docs/reference/kraft.client.html",
    "explanation": "docs/architecture.html",
}
"""One page of each kind, by the name of its picture."""
DESKTOP, PHONE, GAP, HEIGHT = 1280, 420, 40, 1500
SHARE = 0.5
"""The pictures are stored at this scale."""
FRAMES = """<!doctype html><style>
body {{ margin: 0; display: flex; gap: {gap}px; background: #888; }}
iframe {{ border: 0; height: {height}px; flex: none; }}
</style>
<iframe src="{page}" style="width:{desktop}px;color-scheme:light"></iframe>
<iframe src="{page}" style="width:{phone}px;color-scheme:dark"></iframe>
"""


def taken(browser: str, page: Path, folder: Path) -> Image.Image:
    """Both views of a page in one picture."""
    frames, picture = folder / "frames.html", folder / "picture.png"
    frames.write_text(FRAMES.format(page=page.as_uri(), gap=GAP, height=HEIGHT, desktop=DESKTOP, phone=PHONE))
    subprocess.run(
        [
            *(
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ),
            *("--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000"),
            *(f"--user-data-dir={folder / 'profile'}", f"--window-size={DESKTOP + GAP + PHONE},{HEIGHT}"),
            *(f"--screenshot={picture}", frames.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=180,
    )
    with Image.open(picture) as shown:
        return shown.convert("RGB")


def main() -> int:
    """Take all pictures; the argument is the program of the browser."""
    browser = sys.argv[1] if len(sys.argv) > 1 else "chromium"
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        with TemporaryDirectory() as folder:
            both = taken(browser, SITE / page, Path(folder))
        size = (round(both.width * SHARE), round(both.height * SHARE))
        both.resize(size, Image.Resampling.LANCZOS).save(PICTURES / f"{name}.webp", quality=70, method=6)
        both.save(ROOT / "out" / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
