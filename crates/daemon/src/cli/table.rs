//! Text in columns.

/// Returns the rows below each other, each column as wide as its widest cell.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// One value on each line, names aligned right, like `\G` shows rows.
pub(crate) fn vertical(title: &str, values: &[(String, String)]) -> String {
    let width = values.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = format!("*************************** {title} ***************************\n");
    for (name, value) in values {
        text.push_str(format!("{name:>width$}: {value}").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_under_each_other() {
        let cell = str::to_owned;
        let rows = [[cell("A"), cell("LONG")], [cell("abc"), cell("1")]];
        assert_eq!(columns(&rows), "A    LONG\nabc  1\n");
        let text = vertical("1. orders", &[(cell("Lag"), cell("1")), (cell("State"), cell(""))]);
        assert!(text.ends_with("\n  Lag: 1\nState:\n"), "{text}");
    }
}
