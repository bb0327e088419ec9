//! A Markdown table with aligned columns.

use std::fmt;

#[derive(Debug)]
pub(super) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(headings: &[&str]) -> Self {
        Self { headings: headings.iter().map(|text| (*text).to_owned()).collect(), rows: vec![] }
    }

    /// Missing cells stay empty.
    pub(super) fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.headings.len(), String::new());
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]);
        let widths = cells.chain([&self.headings[column]]).map(|text| text.chars().count());
        widths.max().unwrap_or_default().max(3)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.headings.len()).map(|at| self.width(at)).collect();
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).map(|(text, width)| format!(" {text:width$} |"));
            format!("|{}", padded.collect::<String>())
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        writeln!(formatter, "{}\n{}", line(&self.headings), line(&rule))?;
        self.rows.iter().try_for_each(|row| writeln!(formatter, "{}", line(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["load", "x"]);
        table.row(vec!["updates-1".into(), "1".into()]);
        table.row(vec!["fk".into()]);
        let expected = "| load      | x   |\n| --------- | --- |\n| updates-1 | 1   |\n\
                        | fk        |     |\n";
        assert_eq!(table.to_string(), expected);
    }
}
