"""`python -m tests.golden.rewrite` rewrites every golden file and removes those without an example."""

from __future__ import annotations

from tests.golden.manifests import goldens, kept


def main() -> None:
    """Rewrite the files that differ and print their names."""
    wanted = goldens()
    for path in kept():
        if path not in wanted:
            path.unlink()
            print(f"removed {path.name}")
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
