"""The functions that a condition may call: the same answer for the same values, always and everywhere.

An allow-list, because a list of what is forbidden is never complete. Left out are all that know the
clock, chance, the server, its settings, its users, its dictionaries and files, the place of a row among
others (`rowNumberInBlock`, `neighbor`), the way a part stores it (`lowCardinalityIndices`, `byteSize`),
and those that make rows (`arrayJoin`), wait or fail on purpose.
"""

_COMPARED = """
equals notEquals less lessOrEquals greater greaterOrEquals isNotDistinctFrom isDistinctFrom in notIn like
notLike ilike notILike and or xor not isNull isNotNull isZeroOrNull ifNull nullIf coalesce assumeNotNull
toNullable if multiIf caseWithExpression greatest least clamp transform isNaN isFinite isInfinite
ifNotFinite identity
"""
_NUMBERS = """
plus minus multiply divide intDiv intDivOrZero intDivOrNull modulo moduloOrZero moduloOrNull
positiveModulo positiveModuloOrNull divideOrNull negate abs sign gcd lcm min2 max2 byteSwap
multiplyDecimal divideDecimal round roundBankers floor ceil trunc roundToExp2 roundDown bitAnd bitOr
bitXor bitNot bitShiftLeft bitShiftRight bitRotateLeft bitRotateRight bitTest bitTestAny bitTestAll
bitCount bitHammingDistance pow sqrt cbrt exp log log2 log10 intExp2 intExp10 isPrime
"""
_TEXT = """
empty notEmpty length lengthUTF8 lower upper lowerUTF8 upperUTF8 reverse reverseUTF8 concat substring
substringUTF8 substringIndex left right leftUTF8 rightUTF8 leftPad rightPad trimLeft trimRight trimBoth
repeat startsWith endsWith startsWithUTF8 endsWithUTF8 isValidUTF8 toValidUTF8 ascii position positionUTF8
positionCaseInsensitive positionCaseInsensitiveUTF8 locate countSubstrings match extract extractAll
countMatches multiSearchAny multiMatchAny hasToken hasTokenCaseInsensitive hasSubsequence replaceOne
replaceAll replaceRegexpOne replaceRegexpAll translate splitByChar splitByString splitByRegexp alphaTokens
arrayStringConcat hex unhex bin unbin base64Encode base64Decode tryBase64Decode CRC32 domain
domainWithoutWWW protocol path topLevelDomain extractURLParameter
"""
_TIMES = """
toYear toQuarter toMonth toDayOfMonth toDayOfYear toDayOfWeek toHour toMinute toSecond toMillisecond
toYYYYMM toYYYYMMDD toYYYYMMDDhhmmss toISOWeek toISOYear toWeek toYearWeek toMonday toStartOfYear
toStartOfISOYear toStartOfQuarter toStartOfMonth toStartOfWeek toStartOfDay toStartOfHour
toStartOfMinute toStartOfSecond toStartOfFiveMinutes toStartOfTenMinutes toStartOfFifteenMinutes
toStartOfInterval toLastDayOfMonth dateTrunc dateDiff age toRelativeYearNum toRelativeQuarterNum
toRelativeMonthNum toRelativeWeekNum toRelativeDayNum toRelativeHourNum toRelativeMinuteNum
toRelativeSecondNum toYearNumSinceEpoch toMonthNumSinceEpoch toUnixTimestamp toUnixTimestamp64Milli
toUnixTimestamp64Micro toUnixTimestamp64Nano fromUnixTimestamp fromUnixTimestamp64Milli
fromUnixTimestamp64Micro fromUnixTimestamp64Nano toTimezone addYears addQuarters addMonths addWeeks
addDays addHours addMinutes addSeconds subtractYears subtractQuarters subtractMonths subtractWeeks
subtractDays subtractHours subtractMinutes subtractSeconds toIntervalYear toIntervalQuarter
toIntervalMonth toIntervalWeek toIntervalDay toIntervalHour toIntervalMinute toIntervalSecond
toIntervalMillisecond toIntervalMicrosecond toIntervalNanosecond makeDate makeDate32 makeDateTime
makeDateTime64 formatDateTime parseDateTimeBestEffort parseDateTimeBestEffortOrNull
parseDateTimeBestEffortOrZero parseDateTime64BestEffort parseDateTime64BestEffortOrNull parseDateTime
"""
_CONVERTED = """
CAST accurateCast accurateCastOrNull toString toFixedString toBool toUUID toUUIDOrNull toUUIDOrZero toDate
toDateOrNull toDateOrZero toDate32 toDate32OrNull toDateTime toDateTimeOrNull toDateTimeOrZero
toDateTime64 toDateTime64OrNull toDecimal32 toDecimal64 toDecimal128 toDecimal256 toDecimal32OrNull
toDecimal64OrNull toDecimal128OrNull toFloat32 toFloat64 toFloat32OrNull toFloat64OrNull
toLowCardinality toIPv4 toIPv6 toIPv4OrNull toIPv6OrNull IPv4NumToString IPv4StringToNum IPv6NumToString
IPv6StringToNum isIPv4String isIPv6String isIPAddressInRange IPv4ToIPv6 reinterpretAsUInt64
reinterpretAsInt64 reinterpretAsString
"""
_NESTED = """
array tuple map lambda tupleElement arrayElement has hasAny hasAll hasSubstr indexOf countEqual arrayExists
arrayAll arrayCount arrayMap arrayFilter arrayFirst arrayLast arrayFirstIndex arrayLastIndex arraySum
arrayMin arrayMax arrayAvg arrayConcat arraySlice arraySort arrayReverseSort arrayReverse arrayDistinct
arrayUniq arrayFlatten arrayCompact arrayZip range mapKeys mapValues mapContains mapContainsKey JSONHas
JSONLength JSONType JSONExtract JSONExtractInt JSONExtractUInt JSONExtractFloat JSONExtractBool
JSONExtractString JSONExtractRaw JSONExtractArrayRaw JSONExtractKeys simpleJSONExtractInt
simpleJSONExtractUInt simpleJSONExtractFloat simpleJSONExtractBool simpleJSONExtractString simpleJSONHas
isValidJSON dynamicType dynamicElement variantType variantElement
"""
_HASHED = """
cityHash64 sipHash64 sipHash128 xxHash32 xxHash64 farmHash64 metroHash64 murmurHash2_32 murmurHash2_64
murmurHash3_32 murmurHash3_64 murmurHash3_128 intHash32 intHash64 javaHash MD5 SHA1 SHA224 SHA256 SHA512
halfMD5 icebergHash icebergBucket icebergTruncate
"""
_INTEGERS = frozenset(
    f"to{sign}Int{bits}{otherwise}"
    for sign in ("", "U")
    for bits in (8, 16, 32, 64, 128, 256)
    for otherwise in ("", "OrNull", "OrZero")
)
LASTING = _INTEGERS.union(
    *(text.split() for text in (_COMPARED, _NUMBERS, _TEXT, _TIMES, _CONVERTED, _NESTED, _HASHED))
)
_FOLDED = frozenset(name.casefold() for name in LASTING)


def lasting(function: str) -> bool:
    """Whether a condition may call it. By any case: most old names are understood so."""
    return function.casefold() in _FOLDED
