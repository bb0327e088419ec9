-- The account of a channel on its target; grants-source.sql has the one on its source.
-- Rows and the checkpoint:
CREATE USER 'csa'@'%' IDENTIFIED BY 'change me';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO 'csa'@'%';
-- Replicated DDL:
GRANT DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT,
      EXECUTE ON *.* TO 'csa'@'%';
-- Protect the target's accounts: with INSERT, UPDATE and DELETE on the schema mysql a server accepts account statements
-- without CREATE USER. Global privileges cover that schema unless they are revoked there. Replicas of the target need
-- partial_revokes = ON first, or the REVOKE stops them (1141):
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

-- To grant schema by schema instead of the two global GRANTs (rows, DDL) and the REVOKE: these for the daemon itself,
-- GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON csa.* TO 'csa'@'%';
-- GRANT SELECT ON performance_schema.* TO 'csa'@'%';
-- and this for each schema that is replicated, which the account may then also create and drop:
-- GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT, EXECUTE ON shop.* TO 'csa'@'%';

-- Only to replicate the source's accounts to the target (replicate_accounts = true), instead of the REVOKE. An account can
-- pass on only privileges that it has WITH GRANT OPTION:
-- GRANT CREATE USER, ROLE_ADMIN, RELOAD ON *.* TO 'csa'@'%' WITH GRANT OPTION;
