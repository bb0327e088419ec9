//! Every column type at its edges, as a value and in a key.

use super::Pair;

/// A column type and values at its edges. NULL is not listed; the tests add it.
struct Type {
    name: String,
    values: Vec<String>,
    /// The text after its name in a key; `None` where it can't be in one.
    key: Option<&'static str>,
}

fn of(name: &str, key: Option<&'static str>, values: &[&str]) -> Type {
    let values = values.iter().map(|&value| value.to_owned()).collect();
    Type { name: name.to_owned(), values, key }
}

/// Returns a list of members, numbered.
fn members(count: u32) -> String {
    let members: Vec<String> = (1..=count).map(|n| format!("'m{n}'")).collect();
    members.join(",")
}

fn numbers() -> Vec<Type> {
    const WHOLE: Option<&str> = Some("");
    let decimal = format!("{}.{}", "9".repeat(35), "9".repeat(30));
    let tiny = format!("-0.{}1", "0".repeat(29));
    let long = "9".repeat(65);
    vec![
        of("TINYINT", WHOLE, &["-128", "-1", "0", "127"]),
        of("TINYINT UNSIGNED", WHOLE, &["0", "128", "255"]),
        of("SMALLINT", WHOLE, &["-32768", "-1", "32767"]),
        of("SMALLINT UNSIGNED", WHOLE, &["0", "65535"]),
        of("MEDIUMINT", WHOLE, &["-8388608", "-1", "0", "8388607"]),
        of("MEDIUMINT UNSIGNED", WHOLE, &["0", "8388608", "16777215"]),
        of("INT", WHOLE, &["-2147483648", "-1", "2147483647"]),
        of("INT UNSIGNED", WHOLE, &["0", "4294967295"]),
        of("INT(5) ZEROFILL", WHOLE, &["1", "99999"]),
        of("BIGINT", WHOLE, &["-9223372036854775808", "-1", "9223372036854775807"]),
        of("BIGINT UNSIGNED", WHOLE, &["0", "9223372036854775808", "18446744073709551615"]),
        of("DECIMAL(65,30)", WHOLE, &[&decimal, &format!("-{decimal}"), &tiny, "0"]),
        of("DECIMAL(65,0)", WHOLE, &[&long, &format!("-{long}"), "-1"]),
        of("DECIMAL(30,30)", WHOLE, &[&tiny, "0.5", "-0.999999999999999999999999999999"]),
        of("DECIMAL(1,0)", WHOLE, &["-9", "9", "0"]),
        of("DECIMAL(10,5) UNSIGNED", WHOLE, &["0.00001", "99999.99999"]),
        of("FLOAT", WHOLE, &["-3.4028234e38", "1.17549e-38", "-0e0", "0.1"]),
        of("DOUBLE", WHOLE, &["-1.7976931348623157e308", "2.2250738585072014e-308", "-0e0"]),
        of("BIT(1)", WHOLE, &["b'0'", "b'1'"]),
        of("BIT(7)", WHOLE, &["0", "127"]),
        of("BIT(8)", WHOLE, &["0", "255"]),
        of("BIT(9)", WHOLE, &["1", "511"]),
        of("BIT(64)", WHOLE, &["0", "1", "9223372036854775808", "18446744073709551615"]),
        of("BOOLEAN", WHOLE, &["TRUE", "FALSE", "-7"]),
    ]
}

fn times() -> Vec<Type> {
    const WHOLE: Option<&str> = Some("");
    vec![
        of("YEAR", WHOLE, &["'0000'", "1901", "2155"]),
        of("DATE", WHOLE, &["'0000-00-00'", "'2026-00-00'", "'2026-02-00'", "'9999-12-31'"]),
        of("TIME", WHOLE, &["'-838:59:59'", "'-00:00:01'", "'00:00:00'", "'838:59:59'"]),
        of("TIME(1)", WHOLE, &["'-00:00:00.1'", "'-00:00:01.9'", "'00:00:00.9'"]),
        of("TIME(2)", WHOLE, &["'-00:00:00.01'", "'-00:00:01.25'", "'-838:59:59.00'"]),
        of("TIME(3)", WHOLE, &["'-00:00:00.001'", "'-01:00:00.256'", "'100:00:00.999'"]),
        of("TIME(4)", WHOLE, &["'-00:00:00.0001'", "'-01:00:00.0256'"]),
        of("TIME(5)", WHOLE, &["'-00:00:00.00001'", "'838:59:58.99999'"]),
        of("TIME(6)", WHOLE, &["'-00:00:00.000001'", "'-838:59:58.999999'", "'0:0:0.000001'"]),
        of("DATETIME", WHOLE, &["'0000-00-00'", "'1000-01-01'", "'9999-12-31 23:59:59'"]),
        of("DATETIME(3)", WHOLE, &["'1000-01-01 00:00:00.001'", "'9999-12-31 23:59:59.499'"]),
        of("DATETIME(6)", WHOLE, &["'0000-00-00'", "'9999-12-31 23:59:59.499999'"]),
        of("TIMESTAMP", WHOLE, &["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"]),
        of("TIMESTAMP(4)", WHOLE, &["'1970-01-01 00:00:01.0001'", "'0000-00-00'"]),
        of(
            "TIMESTAMP(6)",
            WHOLE,
            &["'1970-01-01 00:00:01.000001'", "'2038-01-19 03:14:07.499999'"],
        ),
    ]
}

fn strings() -> Vec<Type> {
    const WHOLE: Option<&str> = Some("");
    const PREFIX: Option<&str> = Some("(9)");
    // The length takes a second byte from 256 bytes, counted in characters of up to four.
    let lengths = ["''", "'a'", "'a  '", "REPEAT('z',63)", "REPEAT('ä',62)", "'tab\\tnul\\0end'"];
    let mut types = Vec::new();
    for name in ["CHAR(63)", "CHAR(64)", "CHAR(255)", "VARCHAR(63)", "VARCHAR(64)", "VARCHAR(255)"]
    {
        types.push(of(name, WHOLE, &lengths));
    }
    for name in ["VARCHAR(255) CHARACTER SET latin1", "VARCHAR(256) CHARACTER SET latin1"] {
        types.push(of(name, WHOLE, &["REPEAT('x',255)", "'ß'", "''"]));
    }
    types.extend([
        of("CHAR(1)", WHOLE, &["''", "' '", "'😀'"]),
        of("VARCHAR(1)", WHOLE, &["''", "' '", "'😀'"]),
        of("VARCHAR(16000)", PREFIX, &["REPEAT('😀',16000)", "''"]),
        of("CHAR(10) CHARACTER SET utf16", WHOLE, &["'a '", "'😀'", "''"]),
        of("CHAR(10) CHARACTER SET utf32", WHOLE, &["'a '", "'😀'", "''"]),
        of("VARCHAR(10) CHARACTER SET ucs2", WHOLE, &["'ﾃｽﾄ '", "''"]),
        of("CHAR(10) CHARACTER SET sjis", WHOLE, &["'ﾃｽﾄ'", "'表'", "'a'"]),
        of("TINYTEXT", PREFIX, &["''", "REPEAT('x',255)"]),
        of("TEXT", PREFIX, &["''", "REPEAT('y',65535)"]),
        of("MEDIUMTEXT", PREFIX, &["''", "REPEAT('z',70000)"]),
        of("LONGTEXT", PREFIX, &["'x'", "REPEAT('long',300000)"]),
        of("BINARY(1)", WHOLE, &["0x00", "0xff", "''"]),
        of(
            "BINARY(8)",
            WHOLE,
            &["0x0100", "0x61", "0x6120", "0x0000000000000000", "REPEAT(0xff,8)"],
        ),
        of("BINARY(255)", WHOLE, &["REPEAT(0x01,255)", "''"]),
        of("VARBINARY(255)", WHOLE, &["REPEAT(0x01,255)", "0x00", "0x0000", "''"]),
        of("VARBINARY(256)", WHOLE, &["REPEAT(0x01,256)", "0x0100"]),
        of("TINYBLOB", PREFIX, &["''", "REPEAT(0x00,255)"]),
        of("BLOB", PREFIX, &["0x00", "REPEAT(0xfe,65535)"]),
        of("MEDIUMBLOB", PREFIX, &["0x0000", "REPEAT(0x07,70000)"]),
        of("LONGBLOB", PREFIX, &["0x000000", "REPEAT(0x08,1000000)"]),
        of("ENUM('one')", WHOLE, &["0", "1"]),
        of(&format!("ENUM({})", members(255)), WHOLE, &["0", "1", "255"]),
        of(&format!("ENUM({})", members(300)), WHOLE, &["1", "255", "256", "300"]),
        of("ENUM('','a','ä')", WHOLE, &["0", "''", "'ä'"]),
        of("SET('one')", WHOLE, &["0", "1"]),
        of(&format!("SET({})", members(8)), WHOLE, &["0", "255", "128"]),
        of(&format!("SET({})", members(9)), WHOLE, &["0", "256", "511"]),
        of(&format!("SET({})", members(25)), WHOLE, &["0", "16777216", "33554431"]),
        of(
            &format!("SET({})", members(64)),
            WHOLE,
            &["0", "1", "9223372036854775808", "18446744073709551615"],
        ),
    ]);
    types
}

fn objects() -> Vec<Type> {
    const OPAQUE: &str = "JSON_OBJECT('date',DATE'2026-01-02','time',TIME'-838:59:59',\
        'time6',TIME'-00:00:00.000001','datetime',TIMESTAMP'2026-01-02 03:04:05.123456',\
        'year',CAST('2026' AS YEAR),'decimal',CAST('-12345678901234567890.123456789' AS DECIMAL(40,9)),\
        'binary',CAST(0x00ff00 AS BINARY),'blob',CAST(REPEAT(0x01,70000) AS BINARY),\
        'bit',b'101','float',1.5e0,'int64',-9223372036854775808,'uint64',18446744073709551615,\
        'int16',-32768,'uint16',65535,'int32',-2147483648,'uint32',4294967295,\
        'point',ST_GeomFromText('POINT(1 2)'),'null',NULL,'true',TRUE,'empty',JSON_OBJECT())";
    vec![
        of(
            "JSON",
            None,
            &[
                OPAQUE,
                "'null'",
                "'[]'",
                "'\"ü😀\\\\u0000\"'",
                "'[1,[2,[3,{\"a\":[]}]]]'",
                // Offsets of four bytes, and keys that are empty or long.
                "JSON_OBJECT('',REPEAT('x',70000),REPEAT('k',300),JSON_ARRAY(REPEAT('y',40000),1))",
                "CAST(DATE'0000-00-00' AS JSON)",
                "'1e300'",
            ],
        ),
        of(
            "GEOMETRY",
            None,
            &[
                "ST_GeomFromText('POINT(1 2)')",
                "ST_GeomFromText('POINT(1 2)',4326)",
                "ST_GeomFromText('POLYGON((0 0,9 0,9 9,0 0),(1 1,2 1,2 2,1 1))')",
                "ST_GeomFromText('MULTIPOINT(0 0,1 1)')",
                "ST_GeomFromText('MULTILINESTRING((0 0,1 1),(2 2,3 3))')",
                "ST_GeomFromText('MULTIPOLYGON(((0 0,9 0,9 9,0 0)))')",
                "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')",
                "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')",
            ],
        ),
        of("POINT SRID 4326", None, &["ST_GeomFromText('POINT(89 179)',4326)"]),
        of("VECTOR(1)", None, &["STRING_TO_VECTOR('[-0]')", "STRING_TO_VECTOR('[3.4e38]')"]),
        of(
            "VECTOR(16383)",
            None,
            &["STRING_TO_VECTOR(CONCAT('[1',REPEAT(',2',16382),']'))", "STRING_TO_VECTOR('[1,2]')"],
        ),
    ]
}

/// Inserts rows, turns them into each other, and deletes some.
fn as_values(types: &[Type]) -> Vec<String> {
    let mut statements = Vec::new();
    for (number, Type { name, values, .. }) in types.iter().enumerate() {
        let t = format!("v{number}");
        statements.push(format!("CREATE TABLE {t} (id INT PRIMARY KEY, n INT, v {name})"));
        let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
        values.push("NULL");
        let rows = values.iter().enumerate().map(|(id, value)| format!("({id},0,{value})"));
        let rows: Vec<String> = rows.collect();
        statements.push(format!("INSERT INTO {t} VALUES {}", rows.join(",")));
        statements.push(format!("INSERT INTO {t} SELECT id+100, n, v FROM {t}"));
        statements.push(format!("INSERT INTO {t} SELECT id+200, n, v FROM {t} WHERE id < 100"));
        // From every value to the next, from and to NULL too.
        for (id, value) in values.iter().cycle().skip(1).take(values.len()).enumerate() {
            statements.push(format!("UPDATE {t} SET v={value} WHERE id={id}"));
        }
        statements.push(format!("UPDATE {t} SET n=1 WHERE id>=100"));
        statements.push(format!("DELETE FROM {t} WHERE id>=200"));
    }
    statements
}

/// Returns the values as the rows' keys.
fn as_keys(types: &[Type]) -> Vec<String> {
    let mut statements = Vec::new();
    for (number, Type { name, values, key }) in types.iter().enumerate() {
        let Some(part) = key else { continue };
        for (t, key) in [(format!("p{number}"), "PRIMARY KEY"), (format!("u{number}"), "UNIQUE")] {
            statements
                .push(format!("CREATE TABLE {t} (n INT, v {name} NOT NULL, {key} (v{part}))"));
            for value in values {
                statements.push(format!("REPLACE INTO {t} VALUES (1,{value})"));
            }
            statements.push(format!("UPDATE {t} SET n=n+1"));
            for (from, to) in values.iter().zip(values.iter().cycle().skip(1)) {
                statements.push(format!("UPDATE IGNORE {t} SET v={to} WHERE v={from}"));
            }
            if let Some(first) = values.first() {
                statements.push(format!("DELETE FROM {t} WHERE v={first}"));
                statements.push(format!("REPLACE INTO {t} VALUES (3,{first})"));
                statements.push(format!("UPDATE {t} SET n=4 WHERE v={first}"));
            }
        }
    }
    statements
}

async fn at_their_edges(types: Vec<Type>) {
    let pair = Pair::start(&[], &[]).await;
    for session in [
        "SET sql_mode='', time_zone='+00:00', binlog_row_image=FULL",
        "SET sql_mode='', time_zone='+00:00', binlog_row_image=MINIMAL, \
         binlog_row_value_options=PARTIAL_JSON, binlog_transaction_compression=ON",
        "SET sql_mode='', time_zone='+00:00', binlog_row_image=NOBLOB",
    ] {
        pair.run(["DROP DATABASE c", "CREATE DATABASE c"]).await;
        // One of the three is applied as a backlog.
        let mut statements = vec![session.to_owned()];
        statements.extend(as_values(&types));
        statements.extend(as_keys(&types));
        match session.contains("NOBLOB") {
            true => pair.run_as_backlog(statements).await,
            false => pair.run(statements).await,
        }
        let compared = pair.equal().await;
        assert!(compared.rows as usize > types.len() * 4, "{session}: {compared:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn numbers_at_their_edges() {
    at_their_edges(numbers()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn times_at_their_edges() {
    at_their_edges(times()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn strings_at_their_edges() {
    at_their_edges(strings()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_at_their_edges() {
    at_their_edges(objects()).await;
}
