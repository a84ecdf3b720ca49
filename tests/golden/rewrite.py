"""`python -m tests.golden.rewrite` rewrites every golden file and removes those without an example."""

from __future__ import annotations

from tests.golden.manifests import golden_files, goldens


def main() -> None:
    """Rewrite the files that differ and print their names."""
    expected = goldens()
    for path in golden_files():
        if path not in expected:
            path.unlink()
            print(f"removed {path.name}")
    for path, text in expected.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
