/* Runs a line of Python in a new interpreter of this process, and ends it: 0 if it ran. */
typedef struct _ts PyThreadState;
extern PyThreadState *PyThreadState_Get(void), *Py_NewInterpreter(void);
extern PyThreadState *PyThreadState_Swap(PyThreadState *);
extern void Py_EndInterpreter(PyThreadState *);
extern int PyRun_SimpleStringFlags(const char *, void *);

int run_elsewhere(const char *code);
int run_elsewhere(const char *code) {
    PyThreadState *here = PyThreadState_Get(), *there = Py_NewInterpreter();
    int failed;
    if (!there) return -2;
    failed = PyRun_SimpleStringFlags(code, 0);
    Py_EndInterpreter(there);
    PyThreadState_Swap(here);
    return failed;
}
