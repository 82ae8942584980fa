//! Aligned columns.

/// Rows under a head, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct TextTable {
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

/// Between two columns.
const COLUMN_GAP: usize = 3;
/// No column but the last is padded to more than this: one long cell must not push all others away.
const MAX_COLUMN_WIDTH: usize = 60;

impl TextTable {
    pub(crate) fn new(head: &[&str]) -> Self {
        let mut table = TextTable {
            widths: vec![0; head.len()],
            rows: Vec::new(),
        };
        table.row(head.iter().map(|cell| (*cell).to_owned()));
        table
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().map(|cell| one_line(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = cell.chars().count().min(MAX_COLUMN_WIDTH).max(*width);
        }
        self.rows.push(row);
    }

    /// Takes the rows that were added since the last call; the widths are kept.
    pub(crate) fn take(&mut self) -> String {
        let mut text = String::new();
        for row in std::mem::take(&mut self.rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.widths) {
                line.push_str(cell);
                let missing = width.saturating_sub(cell.chars().count());
                line.extend(std::iter::repeat_n(' ', missing + COLUMN_GAP));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Shows an empty cell as such, and drops what would break the line or the terminal.
fn one_line(cell: &str) -> String {
    match cell.trim() {
        "" => "-".to_owned(),
        _ => cell
            .trim_end()
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(row: &[&str]) -> Vec<String> {
        row.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_tail() {
        let mut table = TextTable::new(&["NAME", "STATE"]);
        table.row(cells(&["ünicode-name", "ready"]));
        table.row(cells(&["b", ""]));
        assert_eq!(
            table.take(),
            "NAME           STATE\nünicode-name   ready\nb              -\n"
        );
    }

    #[test]
    fn later_rows_keep_the_widths_of_earlier_ones() {
        let mut table = TextTable::new(&["A", "B"]);
        table.row(cells(&["long enough", "x"]));
        table.take();
        table.row(cells(&["s", "y"]));
        assert_eq!(table.take(), "s             y\n");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        let mut table = TextTable::new(&["A"]);
        table.row(cells(&["one\ntwo\x1b[31m"]));
        assert_eq!(table.take(), "A\none two [31m\n");
    }
}
