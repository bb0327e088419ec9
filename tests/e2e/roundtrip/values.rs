//! Column types, and few distinct values, so that rows meet.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::conflicts::WORDS;

/// Character sets and collations: case, accents, padding, tailoring, several bytes.
pub(super) const COLLATIONS: [&str; 30] = [
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_as_cs",
    "utf8mb4_0900_as_ci",
    "utf8mb4_0900_bin",
    "utf8mb4_bin",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_de_pb_0900_ai_ci",
    "utf8mb4_hu_0900_ai_ci",
    "utf8mb4_tr_0900_ai_ci",
    "utf8mb4_ja_0900_as_cs",
    "utf8mb4_zh_0900_as_cs",
    "utf8mb4_spanish2_ci",
    "utf8mb3_general_ci",
    "latin1_swedish_ci",
    "latin1_german2_ci",
    "latin1_bin",
    "latin2_czech_cs",
    "ascii_general_ci",
    "cp1251_general_cs",
    "tis620_thai_ci",
    "ucs2_general_ci",
    "utf16_unicode_ci",
    "utf16le_general_ci",
    "utf32_general_ci",
    "gbk_chinese_ci",
    "sjis_japanese_ci",
    "gb18030_chinese_ci",
];

const CHOICES: &str = "'a','b','','ä','E'";
const MEMBERS: u32 = 64;

/// A column's type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Name, and the largest value of the signed type.
    Integer {
        name: &'static str,
        max: i128,
        unsigned: bool,
    },
    /// Values from 1 to 20, for foreign keys.
    Reference,
    Decimal(u8, u8),
    Float,
    Double,
    Bit(u8),
    Year,
    Date,
    Time(u8),
    DateTime(u8),
    Timestamp(u8),
    /// CHAR to LONGTEXT; whether a key needs a prefix.
    Text {
        name: &'static str,
        collation: &'static str,
        long: bool,
    },
    Bytes {
        name: &'static str,
        long: bool,
    },
    Enum,
    Set,
    Json,
    Geometry,
    Vector,
}

fn integer(random: &mut StdRng) -> Kind {
    const TYPES: [(&str, u32); 5] =
        [("TINYINT", 7), ("SMALLINT", 15), ("MEDIUMINT", 23), ("INT", 31), ("BIGINT", 63)];
    let (name, bits) = *TYPES.choose(random).expect("types");
    Kind::Integer { name, max: (1 << bits) - 1, unsigned: random.random_bool(0.3) }
}

fn text(random: &mut StdRng) -> Kind {
    const TYPES: [(&str, bool); 8] = [
        ("CHAR(12)", false),
        ("CHAR(80)", false),
        ("VARCHAR(12)", false),
        ("VARCHAR(100)", false),
        ("VARCHAR(400)", true),
        ("TINYTEXT", true),
        ("TEXT", true),
        ("LONGTEXT", true),
    ];
    let (name, long) = *TYPES.choose(random).expect("types");
    Kind::Text { name, collation: COLLATIONS.choose(random).expect("collations"), long }
}

fn bytes(random: &mut StdRng) -> Kind {
    const TYPES: [(&str, bool); 6] = [
        ("BINARY(6)", false),
        ("VARBINARY(12)", false),
        ("VARBINARY(300)", false),
        ("TINYBLOB", true),
        ("BLOB", true),
        ("MEDIUMBLOB", true),
    ];
    let (name, long) = *TYPES.choose(random).expect("types");
    Kind::Bytes { name, long }
}

fn number(random: &mut StdRng) -> Kind {
    match random.random_range(0..6) {
        0 => Kind::Decimal(65, 30),
        1 => Kind::Decimal(10, 2),
        2 => Kind::Float,
        3 => Kind::Double,
        _ => integer(random),
    }
}

fn time(random: &mut StdRng) -> Kind {
    let fraction = random.random_range(0..=6);
    match random.random_range(0..5) {
        0 => Kind::Year,
        1 => Kind::Date,
        2 => Kind::Time(fraction),
        3 => Kind::DateTime(fraction),
        _ => Kind::Timestamp(fraction),
    }
}

impl Kind {
    pub(super) const ID: Self = Self::Integer { name: "INT", max: 0x7fff_ffff, unsigned: false };

    /// Returns any type.
    pub(super) fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..20) {
            0..5 => number(random),
            5..8 => time(random),
            8..12 => text(random),
            12..14 => bytes(random),
            14 => Self::Bit(*[1, 7, 33, 64].choose(random).expect("widths")),
            15 => Self::Enum,
            16 => Self::Set,
            17 | 18 => Self::Json,
            _ if random.random_bool(0.5) => Self::Geometry,
            _ => Self::Vector,
        }
    }

    /// Returns a type for keys.
    pub(super) fn key(random: &mut StdRng) -> Self {
        match random.random_range(0..16) {
            0..3 => number(random),
            3..6 => time(random),
            6..11 => text(random),
            11..13 => bytes(random),
            13 => Self::Enum,
            14 => Self::Set,
            _ => Self::Bit(9),
        }
    }

    pub(super) fn sql(&self) -> String {
        let fraction = |name: &str, digits: u8| match digits {
            0 => name.to_owned(),
            _ => format!("{name}({digits})"),
        };
        match self {
            Self::Integer { name, unsigned, .. } => {
                format!("{name}{}", if *unsigned { " UNSIGNED" } else { "" })
            }
            Self::Reference => "INT".to_owned(),
            Self::Decimal(precision, scale) => format!("DECIMAL({precision},{scale})"),
            Self::Float => "FLOAT".to_owned(),
            Self::Double => "DOUBLE".to_owned(),
            Self::Bit(width) => format!("BIT({width})"),
            Self::Year => "YEAR".to_owned(),
            Self::Date => "DATE".to_owned(),
            Self::Time(digits) => fraction("TIME", *digits),
            Self::DateTime(digits) => fraction("DATETIME", *digits),
            Self::Timestamp(digits) => fraction("TIMESTAMP", *digits),
            Self::Text { name, collation, .. } => {
                let charset = collation.split('_').next().unwrap_or_default();
                format!("{name} CHARACTER SET {charset} COLLATE {collation}")
            }
            Self::Bytes { name, .. } => (*name).to_owned(),
            Self::Enum => format!("ENUM({CHOICES}) COLLATE utf8mb4_0900_as_cs"),
            Self::Set => {
                let members: Vec<String> = (0..MEMBERS).map(|n| format!("'m{n}'")).collect();
                format!("SET({})", members.join(","))
            }
            Self::Json => "JSON".to_owned(),
            Self::Geometry => "GEOMETRY".to_owned(),
            Self::Vector => "VECTOR(3)".to_owned(),
        }
    }

    pub(super) const fn is_integer(&self) -> bool {
        matches!(self, Self::Integer { .. } | Self::Reference)
    }

    pub(super) const fn is_text(&self) -> bool {
        matches!(self, Self::Text { .. })
    }

    /// Returns true if the server can compare its values for equality.
    pub(super) const fn is_comparable(&self) -> bool {
        !matches!(self, Self::Json | Self::Geometry | Self::Vector)
    }

    /// The text after the column's name in a key; `None` where it can't be in one.
    pub(super) fn prefix(&self, random: &mut StdRng) -> Option<String> {
        let (may, must) = match self {
            Self::Text { long, .. } | Self::Bytes { long, .. } => (true, *long),
            other => (false, !other.is_comparable()),
        };
        match (may, must) {
            (false, true) => None,
            (true, must) if must || random.random_bool(0.25) => {
                Some(format!("({})", random.random_range(1..=5)))
            }
            _ => Some(String::new()),
        }
    }

    /// Returns an expression for a value.
    pub(super) fn value(&self, random: &mut StdRng) -> String {
        match self {
            Self::Integer { max, unsigned, .. } => any_integer(*max, *unsigned, random),
            Self::Reference => random.random_range(1..=20).to_string(),
            Self::Decimal(precision, scale) => any_decimal(*precision, *scale, random),
            Self::Float | Self::Double => one_of(
                &["0", "-0e0", "1.5", "-1.5", "1e-30", "0.1", "3e7", "3.4e38", "-1.17e-38", "2"],
                random,
            ),
            Self::Bit(width) => {
                let value: u64 = random.random_range(0..12);
                let high = if random.random_bool(0.1) { 1 << (width - 1) } else { 0 };
                (value | high).to_string()
            }
            Self::Year => one_of(&["0", "1901", "2155", "2026", "2025", "'99'"], random),
            Self::Date => quoted(&any_date(random)),
            Self::Time(_) => one_of(
                &["'-838:59:59'", "'838:59:59'", "'-00:00:01.25'", "'-00:00:00.000001'"],
                random,
            ),
            Self::DateTime(_) => quoted(&format!("{} {}", any_date(random), any_clock(random))),
            Self::Timestamp(_) => {
                let day = random.random_range(1..4);
                quoted(&format!("2026-01-0{day} {}", any_clock(random)))
            }
            Self::Text { long, .. } => any_text(*long, random),
            Self::Bytes { long, .. } => any_bytes(*long, random),
            Self::Enum => random.random_range(1..=5).to_string(),
            Self::Set => match random.random_range(0..8) {
                0 => u64::MAX.to_string(),
                1 => (1_u64 << 63).to_string(),
                _ => random.random_range(0..20).to_string(),
            },
            Self::Json => any_json(random),
            Self::Geometry => {
                let (x, y) = (random.random_range(0..5), random.random_range(-3..3));
                let shape = match random.random_range(0..3) {
                    0 => format!("POINT({x} {y})"),
                    1 => format!("LINESTRING(0 0,{x} {y})"),
                    _ => format!("POLYGON((0 0,9 {y},9 9,0 0))"),
                };
                let srid = if random.random_bool(0.3) { 4326 } else { 0 };
                format!("ST_GeomFromText('{shape}',{srid})")
            }
            Self::Vector => format!("STRING_TO_VECTOR('[{},-2.5,0]')", random.random_range(0..9)),
        }
    }

    /// Returns an expression for another value of the column that has this name.
    pub(super) fn change(&self, name: &str, random: &mut StdRng) -> String {
        if random.random_bool(0.5) {
            return self.value(random);
        }
        let n = random.random_range(1..4);
        match self {
            Self::Integer { .. } | Self::Reference => format!("{name}+{n}"),
            Self::Decimal(..) | Self::Float | Self::Double => format!("-{name}"),
            Self::Text { .. } => format!("CONCAT(LEFT({name},{n}),RIGHT({name},1))"),
            Self::Bytes { .. } => format!("CONCAT(LEFT({name},{n}),0x00)"),
            Self::Date | Self::DateTime(_) => format!("{name} + INTERVAL {n} DAY"),
            Self::Json => {
                let (path, value) = (any_path(random), any_json(random));
                match random.random_range(0..4) {
                    0 => format!("JSON_REMOVE({name},'{path}')"),
                    1 => format!("JSON_REPLACE({name},'{path}',{value})"),
                    // Twice in one statement.
                    2 => format!("JSON_SET(JSON_SET({name},'$.n',{n}),'{path}','{n}')"),
                    _ => format!("JSON_SET({name},'{path}',{value})"),
                }
            }
            _ => self.value(random),
        }
    }
}

fn one_of(values: &[&str], random: &mut StdRng) -> String {
    (*values.choose(random).unwrap_or(&"NULL")).to_owned()
}

fn quoted(text: &str) -> String {
    format!("'{text}'")
}

fn any_integer(max: i128, unsigned: bool, random: &mut StdRng) -> String {
    let (low, high) = if unsigned { (0, max * 2 + 1) } else { (-max - 1, max) };
    match random.random_range(0..12) {
        0 => low,
        1 => high,
        2 => (-1).max(low),
        _ => random.random_range(0..40).min(high),
    }
    .to_string()
}

fn any_decimal(precision: u8, scale: u8, random: &mut StdRng) -> String {
    let integral = usize::from(precision - scale);
    match random.random_range(0..8) {
        0 => format!("{}.{}", "9".repeat(integral), "9".repeat(scale.into())),
        1 => format!("-{}.{}", "9".repeat(integral), "9".repeat(scale.into())),
        2 => format!("-0.{}1", "0".repeat(usize::from(scale) - 1)),
        _ => format!("{}.25", random.random_range(-9..20)),
    }
}

fn any_date(random: &mut StdRng) -> String {
    match random.random_range(0..12) {
        0 => "0000-00-00".to_owned(),
        1 => "1000-01-01".to_owned(),
        2 => "9999-12-31".to_owned(),
        3 => "2024-02-29".to_owned(),
        _ => format!("2026-01-{:02}", random.random_range(1..29)),
    }
}

fn any_clock(random: &mut StdRng) -> String {
    let second = random.random_range(0..6);
    let fraction = *[0, 1, 500_000, 999_999].choose(random).expect("fractions");
    format!("12:00:0{second}.{fraction:06}")
}

/// Bytes rather than characters: the session's character set changes what a literal means.
fn any_text(long: bool, random: &mut StdRng) -> String {
    let word = WORDS.choose(random).unwrap_or(&"");
    let hex: String = word.bytes().map(|byte| format!("{byte:02x}")).collect();
    let word = match hex.is_empty() {
        true => "''".to_owned(),
        false => format!("_utf8mb4 0x{hex}"),
    };
    match long && random.random_bool(0.15) {
        true => format!("REPEAT({word},{})", random.random_range(1..2000)),
        false => word,
    }
}

fn any_bytes(long: bool, random: &mut StdRng) -> String {
    const VALUES: [&str; 10] = [
        "''",
        "0x00",
        "0x0000",
        "0x01",
        "0x0100",
        "0x010000000001",
        "0x6100",
        "'a'",
        "'a '",
        "0xff",
    ];
    let value = one_of(&VALUES, random);
    match long && random.random_bool(0.15) {
        true => format!("REPEAT({value},{})", random.random_range(1..3000)),
        false => value,
    }
}

fn any_path(random: &mut StdRng) -> &'static str {
    ["$.n", "$.s", "$.a[0]", "$.a[last]", "$.o.k", "$.new", "$.o"].choose(random).expect("paths")
}

/// Every kind of value that JSON has in MySQL; multi-valued indexes use `a`.
fn any_json(random: &mut StdRng) -> String {
    let n = random.random_range(0..40);
    let text = "x".repeat(random.random_range(0..200));
    let (first, second) = (random.random_range(0..60), random.random_range(60..120));
    match random.random_range(0..10) {
        0 => format!("CAST('{n}' AS JSON)"),
        1 => "CAST('null' AS JSON)".to_owned(),
        2 => format!("JSON_ARRAY({n},'{text}',NULL,TRUE,-1.5,18446744073709551615)"),
        3 => format!(
            "JSON_OBJECT('d',DATE'2026-01-01','t',TIME'-12:00:00.5','s',TIMESTAMP'2026-01-01 00:00:00.25',\
             'n',CAST(1.10 AS DECIMAL(20,5)),'b',CAST(0x00ff AS BINARY),'g',ST_GeomFromText('POINT(1 {n})'),\
             'y',CAST(2026 AS YEAR),'o',JSON_OBJECT('k',{n}))"
        ),
        _ => format!(
            "JSON_OBJECT('n',{n},'s','{text}','a',JSON_ARRAY({first},{second}),'o',JSON_OBJECT('k','v{n}'))"
        ),
    }
}
