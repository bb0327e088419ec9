use std::path::PathBuf;

use clap::Args;

use crate::verify::TableName;

#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Copy only this table again, on a channel that already has its copy. Without --range the table on the target is
    /// dropped first. The channel follows its source meanwhile. Can be given several times.
    #[arg(long, value_name = "SCHEMA.TABLE", conflicts_with = "plan")]
    pub(crate) table: Vec<TableName>,
    /// Copy only rows of the table whose primary key begins with an integer from FIRST to LAST. The others stay, and
    /// readers see no empty table.
    #[arg(long, value_name = "FIRST..LAST", requires = "table", allow_hyphen_values = true,
          value_parser = integers)]
    pub(crate) range: Option<(i128, i128)>,
    /// Sessions on each server that copy rows at the same time, instead of `copy.lanes`.
    #[arg(long, value_name = "SESSIONS",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub(crate) lanes: Option<usize>,
    /// Most rows that are copied in a second, instead of `copy.rows_per_second`; 0 for any number.
    #[arg(long, value_name = "ROWS")]
    pub(crate) rows_per_second: Option<u32>,
    /// Read the source as another user than the replicating one; SELECT and REPLICATION CLIENT are
    /// needed in addition to REPLICATION SLAVE, for programs also SHOW VIEW, TRIGGER and EVENT.
    #[arg(long, value_name = "USER", requires = "source_password_file")]
    pub(crate) source_user: Option<String>,
    /// File with that user's password.
    #[arg(long, value_name = "FILE", requires = "source_user")]
    pub(crate) source_password_file: Option<PathBuf>,
    /// Do not compare all rows at the end of a copy in one snapshot. Without `copy.verify`, no copy is compared.
    #[arg(long, conflicts_with_all = ["plan", "table", "clone"])]
    pub(crate) no_verify: bool,
    /// Print the tables that would be copied, and copy nothing.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Let the clone plugin copy the source's files over the target's, which needs the same MySQL release on both.
    /// Everything on the target is replaced, accounts included. --source-user is then an administrator of the source
    /// with BACKUP_ADMIN, and --target-user one of the target.
    #[arg(long, requires = "source_user", requires = "target_user",
          conflicts_with_all = ["plan", "table", "cancel", "lanes", "rows_per_second"])]
    pub(crate) clone: bool,
    /// The administrator of the target for --clone.
    #[arg(long, value_name = "USER", requires = "target_password_file", requires = "clone")]
    pub(crate) target_user: Option<String>,
    /// File with that administrator's password.
    #[arg(long, value_name = "FILE", requires = "target_user")]
    pub(crate) target_password_file: Option<PathBuf>,
    /// Drop the tables that an interrupted copy has made on the target.
    #[arg(long, conflicts_with_all = ["plan", "table"])]
    pub(crate) cancel: bool,
    /// Print nothing but the summary.
    #[arg(long)]
    pub(crate) quiet: bool,
}

fn integers(text: &str) -> Result<(i128, i128), String> {
    let wrong = || "two integers are wanted, such as 1000..1999".to_owned();
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    // Those that BIGINT holds, with a sign or without.
    let bounds = i128::from(i64::MIN)..=i128::from(u64::MAX);
    let integer = |text: &str| {
        let number = text.trim().parse::<i128>().ok();
        number.filter(|number| bounds.contains(number)).ok_or_else(wrong)
    };
    let (first, last) = (integer(first)?, integer(last)?);
    match first <= last {
        true => Ok((first, last)),
        false => Err("the first integer is greater than the last one".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::integers;

    #[test]
    fn ranges_are_two_integers_in_order() {
        assert_eq!(integers("1..9"), Ok((1, 9)));
        assert_eq!(integers("-5..-5"), Ok((-5, -5)));
        let all = "-9223372036854775808..18446744073709551615";
        assert_eq!(integers(all), Ok((i128::from(i64::MIN), i128::from(u64::MAX))));
        let larger = "1..18446744073709551616";
        for text in
            [larger, "-9223372036854775809..1", "9..1", "1", "1..", "a..b", "1...9", "1..1.5"]
        {
            assert!(integers(text).is_err(), "{text}");
        }
    }
}
