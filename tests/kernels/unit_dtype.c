/* dtype.h: what the grammar takes, and above all what it refuses. */
#include "harness.h"

static int parse(const char *text, size_t size, rlw_dtype *out) {
    uint8_t *input = exact(text, size);
    int good = rlw_dtype_parse(input, size, out);
    release(input);
    return good;
}

static void accepted(void) {
    static const struct {
        const char *text;
        char kind, order;
        uint32_t itemsize;
    } cases[] = {
        {"bool", 'b', '|', 1},          {"?", 'b', '|', 1},
        {"|b1", 'b', '|', 1},           {"b1", 'b', '|', 1},
        {"<?", 'b', '|', 1},            {">b1", 'b', '|', 1},
        {"int8", 'i', '|', 1},          {"int16", 'i', '<', 2},
        {"int32", 'i', '<', 4},         {"int64", 'i', '<', 8},
        {"uint8", 'u', '|', 1},         {"uint16", 'u', '<', 2},
        {"uint32", 'u', '<', 4},        {"uint64", 'u', '<', 8},
        {"float16", 'f', '<', 2},       {"float32", 'f', '<', 4},
        {"float64", 'f', '<', 8},       {"float96", 'f', '<', 12},
        {"float128", 'f', '<', 16},     {"complex64", 'c', '<', 8},
        {"complex128", 'c', '<', 16},   {"complex192", 'c', '<', 24},
        {"complex256", 'c', '<', 32},   {"|u1", 'u', '|', 1},
        {"|i1", 'i', '|', 1},           {">u1", 'u', '|', 1},
        {"i4", 'i', '<', 4},            {"=i4", 'i', '<', 4},
        {"<f4", 'f', '<', 4},           {">f4", 'f', '>', 4},
        {">i2", 'i', '>', 2},           {">u8", 'u', '>', 8},
        {"<c16", 'c', '<', 16},         {">c8", 'c', '>', 8},
        {"c16", 'c', '<', 16},          {"<f16", 'f', '<', 16},
        {"f12", 'f', '<', 12},          {"c24", 'c', '<', 24},
        {"<c32", 'c', '<', 32},         {"|S1", 'S', '|', 1},
        {"S10", 'S', '|', 10},          {"<S3", 'S', '|', 3},
        {">S3", 'S', '|', 3},           {"<U5", 'U', '<', 20},
        {">U1", 'U', '>', 4},           {"U999999999", 'U', '<', 3999999996u},
        {"S999999999", 'S', '|', 999999999u},
        {"datetime64", 'M', '<', 8},    {"datetime64[ns]", 'M', '<', 8},
        {"datetime64[25us]", 'M', '<', 8}, {"timedelta64[s]", 'm', '<', 8},
        {"<M8[ns]", 'M', '<', 8},       {">M8[D]", 'M', '>', 8},
        {"M8[Y]", 'M', '<', 8},         {"m8[as]", 'm', '<', 8},
        {"<m8", 'm', '<', 8},           {">m8[999999999ps]", 'm', '>', 8},
        {"m8", 'm', '<', 8},            {"<M8", 'M', '<', 8},
        {"timedelta64", 'm', '<', 8},   {"datetime64[M]", 'M', '<', 8},
        {"datetime64[W]", 'M', '<', 8}, {"datetime64[h]", 'M', '<', 8},
        {"datetime64[m]", 'M', '<', 8}, {"datetime64[ms]", 'M', '<', 8},
        {"datetime64[fs]", 'M', '<', 8},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlw_dtype d = {'x', 'x', 0};
        int good = parse(cases[i].text, strlen(cases[i].text), &d);
        CHECK(good == 1);
        EQUAL(d.kind, cases[i].kind);
        EQUAL(d.order, cases[i].order);
        EQUAL(d.itemsize, cases[i].itemsize);
        if (!good || d.itemsize != cases[i].itemsize) fprintf(stderr, "    %s\n", cases[i].text);
    }
}

static void refused(void) {
    static const char *const cases[] = {
        "", "O", "|O", "|O8", "<O8", "O8", "object", "V", "V8", "|V8", "void", "void64", "|V0",
        "<f4,<f4", "f4,f4", "(2,)f4", "(2,2)<f4", "2f4", "[('a','<f4')]", "{'names':['a']}",
        "i4, i4", "f4:name", "int", "float", "uint", "complex", "str", "bytes", "str96", "bytes8",
        "bool8", "boolean", "bool_", "int24", "int0", "int08", "int032", "int128", "int256",
        "int-8", "int4294967304", "uint96", "uint7", "float8", "float0", "float032", "float24",
        "float192", "float256", "float999", "complex32", "complex96", "complex512", "complex0",
        "long", "double", "single", "half", "intp", "int_", "intc", "longdouble", "bfloat16",
        "f", "<f", "f0", "f3", "<f5", "f04", "<f04", "f-4", "f4 ", " f4", "f4\n", "<<f4", "><f4",
        "!f4", "@f4", "i3", "i16", "<i0", "u0", "u3", "b2", "<b0", "?1", "??", "<", ">", "|", "=",
        "c4", "c12", "<c15", "S0", "|S0", "U0", "<U0", "S", "U", "<U", "S-1", "S01", "S+1",
        "U1000000000", "S1000000000", "U18446744073709551617", "S4294967297", "a10", "p", "P",
        "g", "d", "e", "l", "L", "q", "Q", "h", "H", "B", "c", "M", "m", "M4", "m4", "M80",
        "M8[", "M8]", "M8[]", "M8[xs]", "M8[nss]", "M8[ns", "M8ns]", "M8[|]", "M8[|s]", "M8[s|]",
        "M8[0s]", "M8[01s]", "M8[-1s]", "M8[12345678901s]", "M8[s/10]", "M8[s][s]", "M8[s]x",
        "M8[NS]", "datetime64[", "datetime64[]", "datetime64[us][us]", "datetime64ns",
        "datetime32", "datetime", "timedelta64[B]", "timedelta32", "datetime64[generic]",
        "FLOAT32", "Float32", "float32x", "xfloat32", "float_32", "float3 ", "np.float32",
        "numpy.float32", "torch.float32", "T", "StringDType()", "\xff", "\xc3\xa9",
        "<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4",
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlw_dtype d;
        int good = parse(cases[i], strlen(cases[i]), &d);
        CHECK(good == 0);
        if (good) fprintf(stderr, "    %s\n", cases[i]);
    }
}

static void a_nul_hides_nothing(void) {
    rlw_dtype d;
    CHECK(parse("float32\0", 8, &d) == 0);
    CHECK(parse("\0float32", 8, &d) == 0);
    CHECK(parse("<f4\0", 4, &d) == 0);
    CHECK(parse("bool\0", 5, &d) == 0);
    CHECK(parse("M8[s\0]", 6, &d) == 0);
    CHECK(parse("\0", 1, &d) == 0);
}

static void the_longest_text(void) {
    char text[66];
    rlw_dtype d;
    memset(text, '1', sizeof text);
    text[0] = 'S';
    CHECK(parse(text, 64, &d) == 0);
    CHECK(parse(text, 65, &d) == 0);
    CHECK(parse(text, 9, &d) == 1);
    EQUAL(d.itemsize, 11111111);
}

static void every_text_of_up_to_three_bytes_is_safe(void) {
    static const char letters[] = "<>|=?biufcSUmMOVa0123489[],( \n\x80";
    const size_t n = sizeof letters; /* its NUL included */
    size_t a, b, c, taken = 0, outside = 0;
    for (a = 0; a < n; a++)
        for (b = 0; b < n; b++)
            for (c = 0; c < n; c++) {
                uint8_t text[3];
                rlw_dtype d = {'x', 'x', 0};
                text[0] = (uint8_t)letters[a];
                text[1] = (uint8_t)letters[b];
                text[2] = (uint8_t)letters[c];
                if (!rlw_dtype_parse(text, 3, &d)) continue;
                taken++;
                if (d.itemsize == 0 || !strchr("biufcSUmM", d.kind) || !strchr("<>|", d.order))
                    outside++;
            }
    EQUAL(outside, 0);
    CHECK(taken > 50);
}

void dtype_suite(void) {
    RUN(accepted);
    RUN(refused);
    RUN(a_nul_hides_nothing);
    RUN(the_longest_text);
    RUN(every_text_of_up_to_three_bytes_is_safe);
}
