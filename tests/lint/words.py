"""The words of the linter `prose`: phrases that docs/style.md rules out, and verbs by which it knows a sentence."""

import re

_PHRASES = [
    (r"ways? on", "how to proceed, next steps"),
    (r"go(?:es|ing)? on\b(?! the)", "continues, resumes"),
    (r"by (?:itself|themselves)", "on its own, automatically"),
    # A target that falls behind, or sessions left behind, are as one says.
    (r"(?<!fall )(?<!falls )(?<!falling )(?<!fell )(?<!left )(?<!leaves )(?<!minute )\bbehind", "after"),
    (r"in front of", "before"),
    (r"(?:is|are) told", "learns, receives, is configured with"),
    (r"(?:is|are|can) (?:to )?be had", "is available"),
    (r"anew", "again"),
    (r"(?:is|are) meant", "chosen, intended"),
    (r"besides", "unless, except for, alongside"),
    (r"speaks? of", "concerns, describes"),
    (r"mended", "repaired, fixed"),
    (r"whomever", "whoever, anyone"),
    (r"nobody is asked", "say who need not do it"),
    (r"(?<!turn )\b(?:has|have) come\b(?! (?:back|together|or gone|already))", "has arrived"),
    (r"comes? to (?:its|their|an) end", "completes, ends"),
    (r"everybody", "everyone, all clients"),
    (r"(?:anybody|nobody) (?:is )?awake", "without an operator"),
    (r"nobody (?:knows|can know)", "is not known"),
    (r"no way back", "irreversible; can't be undone"),
    (r"attacked by", "tested by"),
    (r"(?:of|to|by) which so much", "rewrite the sentence"),
    (r"for certain", "certainly, provably"),
    (r"a server of his\b|as he says\b|of his choice", "their"),
    (r"is no (?:time|size|list)", "is not a"),
    (r"makes? an end of", "ends"),
    (r"knows? nothing of each other", "are independent"),
    (r"no token of theirs", "none of their tokens"),
    (r"with it again", "again"),
    (r"in vain", "without success, needlessly"),
]

# Whole words of text in lower case. One expression for all is ten times as fast as one for each.
PHRASES = [(re.compile(rf"\b(?:{pattern})\b"), instead) for pattern, instead in _PHRASES]
ANY = re.compile(rf"\b(?:{'|'.join(pattern for pattern, _ in _PHRASES)})\b")

# Base forms of verbs.
VERBS = """
abort accept acknowledge act add adjust admit adopt agree allow answer appear append apply ask assert assign assume attach attempt
audit await back be become begin belong block borrow bound break bring build bump buy call cancel cap carry change check choose claim
classify clean clear close collate collect combine come commit compare complete compress compute concern configure confirm connect
consider consist consume contain continue convert copy correct cost count cover crash create cross cut deal decide declare decode
decompress decrease deduct define delay delete deliver deny depend derive describe detect determine diff differ digest disable
discard display do document double drain draw drive drop dump duplicate edit embed empty enable encode end enforce enter escape
establish estimate evaluate examine exceed exclude execute exist exit expand expect expire explain export express extend fail fall
feed fetch fill filter find finish fit fix flush fold follow force forget form format forward free freeze gather generate get give go
govern group grow guarantee guard guess halve hand handle hang happen hash have help hide hit hold identify ignore implement import
include increase indicate inform inject insert inspect install interpret interrupt invent join judge jump keep kill know label last
lead leave lend let lie like limit link list listen live load lock log look lose lower make map mark match matter mean measure meet
merge mirror miss mount move name need negotiate note notice notify number obey observe occupy offer open order overflow overlap
override overwrite own pack pad parse pass pause pay perform permit persist pick place plan plant play point poll pop populate post
prefix prepare present preserve press prevent print proceed process produce prohibit promise prove provide pull purge push put queue
quote raise reach read reassemble rebuild receive recognise recompute reconnect record recover reduce refer refill refresh refuse
register reject relate release relay remain remember remove rename render renew repair repeat replace replay replicate reply report
represent request require reread reserve reset resolve respond restart restore restrict result resume retain retire retry return
reuse reveal reverse revert rewrite ring rise roll rotate round route run sample satisfy save say scale scan schedule search see seed
seek seem select send separate serialise serve set settle shape share shift shorten show shrink shut sign simulate sit size skip sleep
slice slow solve sort spare spawn speak specify spend split stage stand start state stay step stop store stream strike strip
substitute subtract succeed suffice suggest sum supply support suppress surface survive suspend swap switch sync take tell tend
terminate test throttle throw tie time touch trace track trail translate traverse treat trigger trim trust try turn understand undo
unlock unpack unwrap update upgrade use validate vanish vary verify visit wait wake walk want warn watch weigh widen win wind work
wrap write yield cause contradict contribute decline deem drift encrypt enlarge equal evict exchange inherit initialise intend
invalidate issue maintain outlive own oversee panic pin pair poison prefer probe queue reorder requeue rest suit toggle
announce arrange arrive attribute authenticate begin bind cast catch concatenate deduplicate defer demand deserve differ direct
divide emit exhaust favour hint imply isolate learn lift lookup mention mix narrow negate normalise occur omit outdo overrule
overtake park pretend prune qualify rank rate re-read realise reckon reconcile redirect redo reflect reopen resend scatter schedule
sever smooth spread squeeze stall strip structure summarise surround sweep tail tally tear tighten truncate unblock undergo unset
ensure prolong recognize appeal attach withdraw withhold witness worsen
""".split()
