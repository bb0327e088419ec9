//! Figures in sentences. Pure.

/// Returns the number and the noun, which has an s unless the number is 1.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_no_plural() {
        let said = [0, 1, 2].map(|number| counted(number, "transaction"));
        assert_eq!(said, ["0 transactions", "1 transaction", "2 transactions"]);
    }
}
