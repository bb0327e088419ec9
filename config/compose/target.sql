-- Run once, when the target of compose.yaml is initialised; same grants as ../grants-target.sql.
CREATE USER 'csa'@'%' IDENTIFIED BY 'change me';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO 'csa'@'%';
-- Replicated DDL:
GRANT DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT,
      EXECUTE ON *.* TO 'csa'@'%';
-- Protect the target's accounts: with INSERT, UPDATE and DELETE on the schema mysql a server accepts account statements
-- without CREATE USER. Global privileges cover that schema unless they are revoked there:
SET PERSIST partial_revokes = ON;
REVOKE INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER,
       EVENT ON mysql.* FROM 'csa'@'%';
-- Without these two rows are written by INSERT, UPDATE and DELETE (executor = "sql"), which needs TRIGGER above:
GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO 'csa'@'%';
-- Views, routines, triggers and events whose definer is a system account, as root is:
GRANT SYSTEM_USER ON *.* TO 'csa'@'%';
-- Those of any other definer. A target older than 8.2 skips this statement; run there:
--     GRANT SET_USER_ID ON *.* TO 'csa'@'%';
/*!80200 GRANT SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER ON *.* TO 'csa'@'%' */;
-- Replicated DDL under tagged GTIDs, which a target older than 8.3 does not have:
/*!80300 GRANT TRANSACTION_GTID_TAG ON *.* TO 'csa'@'%' */;
