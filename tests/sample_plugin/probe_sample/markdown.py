"""A third-party reporter: a table in Markdown."""


class Markdown:
    """Reporter that writes tables in Markdown, without colours."""

    def __init__(self, bold=False):
        self.mark = "**" if bold else ""

    def open(self, path, headers, row_count):
        """Return the writer of a table at ``path``."""
        return Writer(path, [f"{self.mark}{header}{self.mark}" for header in headers])

    def line(self, row, row_count):
        """Return the line number of a row; the header takes two lines."""
        return str(row + 3)


class Writer:
    """A Markdown file that is being written."""

    def __init__(self, path, headers):
        self.file = path.open("w", encoding="utf-8")
        self.write(headers, None)
        self.write(["---"] * len(headers), None)

    def write(self, cells, colour):
        """Append one row."""
        shown = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
        self.file.write(f"| {' | '.join(shown)} |\n")

    def close(self):
        """Complete the file."""
        self.file.close()

    abandon = close
