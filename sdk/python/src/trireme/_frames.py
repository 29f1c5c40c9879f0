# SPDX-License-Identifier: Apache-2.0
"""Lists as tables: pandas frames, HTML in notebooks, rich tables in terminals."""

from __future__ import annotations

import html
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from rich.table import Table


class ResourceFrames:
    """What has rows: dictionaries with the same keys."""

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows."""
        raise NotImplementedError

    def to_frame(self) -> pandas.DataFrame:
        """Returns the rows as a pandas frame. It needs `pip install trireme[pandas]`."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install trireme[pandas]") from error
        frame: pandas.DataFrame = pandas.DataFrame(self.rows())
        return frame

    def _repr_html_(self) -> str:
        return html_table(self.rows())

    def __rich__(self) -> Table:
        from rich.table import Table

        rows = self.rows()
        table = Table(*(rows[0] if rows else ["no rows"]))
        for row in rows:
            table.add_row(*(text(value) for value in row.values()))
        return table


def text(value: Any) -> str:
    """Returns a value as people read it."""
    if value is None:
        return ""
    return value.strftime("%Y-%m-%d %H:%M:%S") if isinstance(value, datetime) else str(value)


def html_table(rows: list[dict[str, Any]]) -> str:
    """Returns rows as an HTML table. All values are escaped: they are data of other people."""
    if not rows:
        return "<p>none</p>"
    heads = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
    lines = ("".join(f"<td>{html.escape(text(value))}</td>" for value in row.values()) for row in rows)
    return (
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )
