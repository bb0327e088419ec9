//! Rows and values that servers treat in ways of their own.

use super::{equal, run, three};

/// Rows that only bytes tell apart.
#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_key_and_partial_documents() {
    let (source, images, statements, daemon) = three().await;
    let mut conn = source.conn().await;
    run(&mut conn, "CREATE DATABASE v").await;
    run(
        &mut conn,
        "CREATE TABLE v.like_each_other (c VARCHAR(9), h CHAR(9), d DOUBLE, j JSON, b BINARY(3), n INT, \
         KEY (c))",
    )
    .await;
    let rows = "('a','a',0e0,'1',x'61',1),('A','a',0e0,'1',x'61',2),('a ','a',0e0,'1',x'61',3),\
        ('a','A',0e0,'1',x'61',4),('a','a',-0e0,'1',x'61',5),('a','a',0e0,'1.0',x'61',6),\
        ('a','a',0e0,'1',x'6100',7),('a','a',0e0,'1',x'6120',8),('á','a',0e0,'1',x'61',9),\
        (NULL,'a',0e0,'1',x'61',10),('a','a',0e0,NULL,x'61',11),('a','a',0e0,'null',x'61',12),\
        ('a','a',0e0,'\\\"1\\\"',x'61',13)";
    run(&mut conn, &format!("INSERT INTO v.like_each_other VALUES {rows}")).await;
    for n in (1..=13).rev() {
        // The last of equal rows is deleted or changed.
        run(&mut conn, &format!("UPDATE v.like_each_other SET n=NULL WHERE n={n}")).await;
        if n % 3 == 0 {
            run(&mut conn, "DELETE FROM v.like_each_other WHERE n IS NULL LIMIT 1").await;
        }
    }
    run(&mut conn, "CREATE TABLE v.doc (id INT PRIMARY KEY, j JSON, k JSON, v INT)").await;
    run(&mut conn, &format!("INSERT INTO v.doc SELECT 1, {}, JSON_ARRAY(1,2,3), 1", r#"'{"a": [1, 2, {"b": "x"}], "c": "it''s", "long": "............................................................"}'"#)).await;
    run(&mut conn, "INSERT INTO v.doc SELECT id+1, j, k, v FROM v.doc").await;
    for image in ["FULL", "MINIMAL"] {
        run(
            &mut conn,
            &format!("SET binlog_row_image={image}, binlog_row_value_options=PARTIAL_JSON"),
        )
        .await;
        for change in [
            "j=JSON_REPLACE(j,'$.c','tt\\\\''s'), v=v+1",
            "j=JSON_SET(j,'$.a[0]',CAST('2024-01-01' AS DATE),'$.a[2].b',CAST(1.5 AS DECIMAL(3,1)))",
            "j=JSON_SET(j,'$.\\\"new k\\\"',JSON_ARRAY(1.5e0)), k=JSON_REMOVE(k,'$[1]')",
            "j=JSON_REMOVE(j,'$.\\\"new k\\\"','$.a[1]')",
            "k=JSON_ARRAY_INSERT(k,'$[0]',true)",
            "k=JSON_SET(k,'$[9]','end'), j=JSON_SET(j,'$.d',CAST(x'00' AS BINARY),'$.e',CAST(1.5 AS DECIMAL(3,1)))",
        ] {
            run(&mut conn, &format!("UPDATE v.doc SET {change}")).await;
        }
    }
    run(&mut conn, "CREATE TABLE v.numbers (id INT AUTO_INCREMENT PRIMARY KEY, j JSON)").await;
    for number in ["4294967295", "4294967296", "5000000000", "9223372036854775807"] {
        for made in [
            format!("CAST({number} AS JSON)"),
            format!("CAST(CAST({number} AS UNSIGNED) AS JSON)"),
            format!("JSON_OBJECT('n', {number})"),
            format!("JSON_ARRAY(CAST({number} AS UNSIGNED))"),
            format!("CAST('{number}' AS JSON)"),
        ] {
            run(&mut conn, &format!("INSERT INTO v.numbers (j) VALUES ({made})")).await;
        }
    }
    equal(&source, [&images, &statements], &daemon).await; // Text hides a date and a decimal.
    let types = "SELECT GROUP_CONCAT(JSON_TYPE(COALESCE(j->'$.n', j->'$[0]', j)) ORDER BY id) \
        FROM v.numbers";
    let expected: String = source.value(types).await;
    assert!(expected.starts_with("INTEGER,UNSIGNED INTEGER,INTEGER,UNSIGNED"), "{expected}");
    assert_eq!(images.value::<String>(types).await, expected);
    assert_eq!(statements.value::<String>(types).await, expected);
    let types = "SELECT CONCAT_WS(' ', JSON_TYPE(j->'$.a[0]'), JSON_TYPE(j->'$.e'), j->'$.d') \
        FROM v.doc WHERE id=2";
    let expected: String = source.value(types).await;
    assert_eq!(expected, "DATE DECIMAL \"base64:type15:AA==\"");
    assert_eq!(images.value::<String>(types).await, expected);
    assert_eq!(statements.value::<String>(types).await, expected);
}

/// Edge cases of MySQL's own types and images: a set's 64th member, a VECTOR before strings, a row
/// without any column in the image.
#[tokio::test(flavor = "multi_thread")]
async fn sets_of_64_members_vectors_and_rows_of_defaults() {
    let (source, images, statements, daemon) = three().await;
    let mut conn = source.conn().await;
    let members: Vec<String> = (0..64).map(|n| format!("'m{n}'")).collect();
    let set = format!("SET({})", members.join(","));
    run(&mut conn, "CREATE DATABASE v").await;
    run(&mut conn, "SET sql_mode=''").await;
    run(&mut conn, &format!("CREATE TABLE v.keyed (k {set} PRIMARY KEY, v INT)")).await;
    run(&mut conn, &format!("CREATE TABLE v.both (k {set}, l INT, v INT, PRIMARY KEY (l,k))"))
        .await;
    run(&mut conn, &format!("CREATE TABLE v.bag (k {set}, v INT)")).await;
    run(
        &mut conn,
        "CREATE TABLE v.vectors (id INT PRIMARY KEY, b VARBINARY(9), e VECTOR(2), l VARCHAR(9) \
         CHARACTER SET latin1, u TEXT, UNIQUE (l))",
    )
    .await;
    run(&mut conn, "CREATE TABLE v.defaults (a INT, b VARCHAR(9) DEFAULT 'b', j JSON)").await;
    run(&mut conn, "CREATE TABLE v.implicit (id INT NOT NULL PRIMARY KEY, s TEXT NOT NULL)").await;
    let all = [u64::MAX, 1 << 63, (1 << 63) - 1, 5];
    for image in ["FULL", "MINIMAL"] {
        run(&mut conn, &format!("SET binlog_row_image={image}")).await;
        for members in all {
            run(&mut conn, &format!("INSERT INTO v.keyed VALUES ({members},1)")).await;
            run(&mut conn, &format!("INSERT INTO v.both VALUES ({members},2,1)")).await;
            run(&mut conn, &format!("INSERT INTO v.bag VALUES ({members},1),({members},2)")).await;
        }
        run(&mut conn, "UPDATE v.keyed SET v=v+1").await;
        run(&mut conn, "UPDATE v.both SET v=v+1").await;
        run(&mut conn, "UPDATE v.bag SET v=v+1 WHERE v=1").await;
        run(&mut conn, "DELETE FROM v.keyed").await;
        run(&mut conn, "DELETE FROM v.both WHERE v=2").await;
        run(&mut conn, "DELETE FROM v.bag WHERE v=2 LIMIT 7").await;
        for change in [
            "INSERT INTO v.vectors VALUES (1,'b',STRING_TO_VECTOR('[1,2]'),'ü','ü'),(2,NULL,NULL,'b',NULL)",
            "UPDATE v.vectors SET l='x', u='☃' WHERE id=1",
            "DELETE FROM v.vectors WHERE id=1",
            "UPDATE v.vectors SET id=id*10 ORDER BY id DESC",
            "UPDATE v.vectors SET l=CONCAT(id,'l') ORDER BY id DESC",
            "INSERT INTO v.defaults () VALUES ()",
            "INSERT INTO v.defaults () VALUES ()",
            "INSERT INTO v.implicit () VALUES ()",
            "UPDATE v.implicit SET id=id+10 ORDER BY id DESC",
        ] {
            run(&mut conn, change).await;
        }
    }
    equal(&source, [&images, &statements], &daemon).await;
    let rows: u64 = statements.value("SELECT COUNT(*) FROM v.defaults").await;
    assert_eq!(rows, 4);
}

/// Values that are computed and cut when stored: generated columns and functional indexes of a
/// source without strict mode, enumerations without a member, character sets that make the target
/// warn.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_lenient_source_stores() {
    let (source, images, statements, daemon) = three().await;
    let mut conn = source.conn().await;
    run(&mut conn, "CREATE DATABASE v").await;
    run(&mut conn, "SET sql_mode=''").await;
    for definition in [
        "v.cut (id INT PRIMARY KEY, a VARCHAR(20), g VARCHAR(9) CHARACTER SET ascii AS (LOWER(a)) \
         VIRTUAL, s VARCHAR(3) AS (a) STORED, n TINYINT AS (a * 300) VIRTUAL, KEY (g), KEY (n))",
        "v.functional (id INT PRIMARY KEY, a VARCHAR(20), KEY ((CAST(a AS CHAR(3)))))",
        "v.bag (a VARCHAR(20), s VARCHAR(3) AS (a) STORED)",
        "v.choice (id INT PRIMARY KEY, e ENUM('a','b') NOT NULL, f ENUM('x','y'), \
         u TEXT CHARACTER SET ucs2, g VARCHAR(1) AS (u) VIRTUAL)",
        "v.plain_choice (id INT PRIMARY KEY, e ENUM('a','b') NOT NULL, u TEXT CHARACTER SET ucs2)",
        "v.vector (id INT PRIMARY KEY, v VECTOR(2) NOT NULL)",
    ] {
        run(&mut conn, &format!("CREATE TABLE {definition}")).await;
    }
    for (round, image) in (0..).zip(["FULL", "MINIMAL", "NOBLOB"]) {
        run(&mut conn, &format!("SET binlog_row_image={image}")).await;
        for n in round * 10..round * 10 + 4 {
            let text = ["'ä'", "'longer than that'", "'9'", "NULL"][n % 4];
            for table in ["cut", "functional"] {
                run(&mut conn, &format!("INSERT INTO v.{table} (id,a) VALUES ({n},{text})")).await;
            }
            run(&mut conn, &format!("INSERT INTO v.bag (a) VALUES ({text}),('ü')")).await;
            run(&mut conn, &format!("INSERT INTO v.choice (id,e,f,u) VALUES ({n},'?','?',{text})"))
                .await;
            let plain = format!("INSERT INTO v.plain_choice VALUES ({n},'?',{text})");
            run(&mut conn, &plain).await;
            run(&mut conn, &format!("INSERT INTO v.vector (id) VALUES ({n}),(-{n}-1)")).await;
        }
        for change in [
            "UPDATE v.vector SET v=STRING_TO_VECTOR('[1,2]') WHERE id%4=1",
            "UPDATE v.vector SET v=DEFAULT WHERE id%8=1",
            "UPDATE v.vector SET id=id+100 WHERE id%4=2",
            "DELETE FROM v.vector WHERE id%4=3",
            "UPDATE v.cut SET a=CONCAT('ö',a)",
            "UPDATE v.cut SET id=-id WHERE id%4=1",
            "DELETE FROM v.cut WHERE id%4=0",
            "UPDATE v.functional SET a=CONCAT(a,a)",
            "DELETE FROM v.functional WHERE id%4=2",
            "UPDATE v.bag SET a=CONCAT(a,'xyz') WHERE a<>'ü'",
            "DELETE FROM v.bag WHERE a='ü' LIMIT 2",
            "UPDATE v.choice SET e='b', f='?', u='ü'",
            "DELETE FROM v.choice WHERE id%4=3",
            "UPDATE v.plain_choice SET e='?', u='ü☃'",
        ] {
            run(&mut conn, change).await;
        }
    }
    equal(&source, [&images, &statements], &daemon).await;
    let cut: u64 =
        source.value("SELECT COUNT(*) FROM v.cut WHERE g LIKE '?%' AND LENGTH(s)>=3").await;
    assert!(cut > 2, "{cut}");
}
